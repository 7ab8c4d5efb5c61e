"""Job files: what they mean, and one sentence for everything that can be wrong with them."""

import copy
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from mcattn import jobtext, protocols
from mcattn.errors import JobError

ROOT = Path(__file__).parent.parent
GOOD = {
    "model": {"L": 8, "V": 4},
    "protocol": {
        "kind": "hysteresis",
        "P": {"start": 100, "stop": 140, "points": 3},
        "chi": 10,
        "sweeps": [20, 40],
        "thermalize": 10,
        "equilibrate": 30,
        "replicas": 5,
    },
}


def changed(key, value):
    table = copy.deepcopy(GOOD)
    *parents, last = key.split(".")
    inner = table
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    return table


def test_a_hysteresis_path_goes_up_and_down_once_for_each_rate():
    plan = jobtext.parse(GOOD, "job").protocol.plan()
    assert plan.states.P.tolist() == [100, 120, 140, 140, 120, 100] * 2
    assert plan.states.branch.tolist() == [1, 1, 1, -1, -1, -1] * 2
    assert plan.states.loop.tolist() == [0] * 6 + [1] * 6
    assert plan.states.sweeps.tolist() == [20] * 6 + [40] * 6
    assert plan.states.thermalize.tolist() == ([40] + [10] * 5) * 2
    assert plan.total_sweeps == 2 * (30 + 60) + 6 * (20 + 40)
    assert [stage.restart for stage in plan.stages] == ([True] + [False] * 5) * 2
    assert [stage.keep_patterns for stage in plan.stages[:6]] == [4, 0, 4, 0, 0, 4]
    assert all(stage.states.tolist() == [k] * 5 for k, stage in enumerate(plan.stages))


def test_a_list_is_followed_as_it_is():
    plan = jobtext.parse(changed("protocol.P", [1, 3, 3, 2, 4]), "job").protocol.plan()
    assert plan.states.P[:5].tolist() == [1, 3, 3, 2, 4]
    assert plan.states.branch[:5].tolist() == [1, 1, -1, -1, 1]


def test_chi_may_follow_the_path():
    table = changed("protocol.P", [5, 5, 5])
    table["protocol"]["chi"] = [1, 2, 3]
    states = jobtext.parse(table, "job").protocol.plan().states
    assert states.chi[:3].tolist() == [1, 2, 3]
    assert states.branch[:3].tolist() == [1, 1, 1]


def test_chosen_points_keep_their_patterns_on_both_branches():
    plan = jobtext.parse(changed("protocol.patterns_at", [120]), "job").protocol.plan()
    assert [stage.keep_patterns for stage in plan.stages[:6]] == [4, 4, 4, 0, 4, 4]


def test_fixed_states_hold_their_own_replicas():
    job = {
        "model": {},
        "protocol": {"kind": "fixed", "P": [300, 310], "chi": 10, "replicas": 3, "sweeps": 9},
    }
    plan = jobtext.parse(job, "job").protocol.plan()
    assert plan.replicas == 6
    assert plan.stages[0].states.tolist() == [0, 0, 0, 1, 1, 1]
    job["protocol"] |= {"bias_center": [0.1, 0.2], "bias_strength": 50}
    states = jobtext.parse(job, "job").protocol.plan().states
    assert states.bias_center.tolist() == [0.1, 0.2]
    assert states.bias_strength.tolist() == [50, 50]


LADDER = {"model": {}, "protocol": {"kind": "tempering", "P": [300, 400], "chi": [10, 5]}}


def ladder_plan(**settings):
    return jobtext.parse({**LADDER, "protocol": {**LADDER["protocol"], **settings}}, "job")


def test_a_ladder_lies_on_a_path():
    plan = ladder_plan(states=5, ladders=3, thermalize=40, sweeps=60).protocol.plan()
    assert plan.states.P.tolist() == [300, 325, 350, 375, 400]
    assert plan.states.chi.tolist() == [10, 8.75, 7.5, 6.25, 5]
    assert plan.replicas == 15
    assert plan.stages[0].states.tolist() == [0, 1, 2, 3, 4] * 3
    assert plan.stages[0].every == plan.ladder.exchange_every == 20
    assert plan.total_sweeps == 100
    bent = ladder_plan(P=[300, 400, 300], chi=[10, 5, 8]).protocol.plan()
    assert bent.states.P.tolist() == [300, 400, 300]
    assert bent.states.chi.tolist() == [10, 5, 8]
    windows = ladder_plan(P=300, chi=10, bias_center=[0.1, 0.4, 0.7], bias_strength=90)
    assert windows.protocol.plan().states.bias_strength.tolist() == [90, 90, 90]


def test_pilot_rounds_come_first():
    plan = ladder_plan(tune_rounds=2, tune_sweeps=500, thermalize=40, sweeps=60).protocol.plan()
    assert [stage.respace for stage in plan.stages] == [True, True, False]
    assert [stage.restart for stage in plan.stages] == [True, False, False]
    assert [stage.rows for stage in plan.stages] == [0, 0, 3]
    assert plan.total_sweeps == 1100
    assert (plan.states.thermalize == 1040).all()


def test_a_grid_has_every_P_with_every_chi():
    plan = ladder_plan(P=[1, 2, 3], chi=[5, 7], grid=True).protocol.plan()
    assert plan.states.P.tolist() == [1, 1, 2, 2, 3, 3]
    assert plan.states.chi.tolist() == [5, 7] * 3
    assert plan.ladder.shape == (3, 2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"P": 300, "chi": 10}, "1 state makes no ladder; give at least 2"),
        ({"chi": [1, 2, 3]}, "P has 2 values and chi has 3; lists must have one common length"),
        ({"tune_rounds": 2, "tune_sweeps": 100}, "tune_sweeps is 100; it must hold at least 20"),
        ({"grid": True, "tune_rounds": 1}, "states and tune_rounds are for a ladder along a path"),
        ({"pairing": "all"}, "pairing is 'all'; it must be 'even-odd' or 'random'"),
        ({"exchange_every": 0}, "exchange_every is 0; it must be greater than or equal to 1"),
        ({"sweeps": 10}, "sweeps is 10; it must be at least every = 20"),
        ({"exchange_evry": 5}, "unknown key protocol.exchange_evry; did you mean exchange_every?"),
    ],
)
def test_wrong_ladders_are_named(settings, sentence):
    with pytest.raises(JobError) as error:
        ladder_plan(**settings)
    assert sentence in str(error.value)


@given(st.lists(st.floats(1, 1e4), min_size=2, max_size=30))
def test_branches_are_the_signs_of_the_steps(P):
    branch = protocols.branches(np.array(P))
    steps = np.sign(np.diff(P))
    moved = steps != 0
    assert (branch[1:][moved] == steps[moved]).all()
    assert len(branch) == len(P)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("model.L", 1, "model.L is 1; it must be at least 2"),
        ("model.L", "16", "model.L is '16'; it must be an integer >= 2"),
        ("model.kapa", 1, "unknown key model.kapa; did you mean kappa?"),
        ("model.kappa", -1, "model.kappa is -1; it must be finite and > 0"),
        ("model.attention", "soft", "model.attention is 'soft'; it must be 'softmax' or 'linear'"),
        ("model.tokens", [0.5, 0.6], "model.tokens has shape (2,); it needs V = 4"),
        ("model", 3, "model is 3; it must be a table, [model]"),
        ("modle", {}, "unknown key modle; did you mean model?"),
        ("protocol.kind", "anneal", "protocol.kind is 'anneal'; it must be one of 'hysteresis'"),
        ("protocol.P", "many", "protocol.P is 'many'; it must be a number > 0, a list"),
        ("protocol.P", [], "protocol.P is []"),
        ("protocol.P", [1, -2], "protocol.P is [1, -2]"),
        ("protocol.P", 300, "protocol.P must have at least 2 values"),
        ("protocol.P.points", 1, "protocol.P.points is 1; it must be greater than or equal to 2"),
        ("protocol.P.pionts", 3, "unknown key protocol.P.pionts; did you mean points?"),
        ("protocol.chi", [1, 2], "protocol.chi has 2 values; the path of P has 6: give 1 or 6"),
        ("protocol.chi", float("nan"), "protocol.chi is nan"),
        ("protocol.sweeps", 0, "protocol.sweeps is 0; it must be an integer >= 1"),
        ("protocol.sweeps", 10.0, "protocol.sweeps is 10.0; it must be an integer >= 1"),
        ("protocol.every", 21, "protocol.sweeps is 20; it must be at least every = 21"),
        ("protocol.replicas", 0, "protocol.replicas is 0; it must be greater than or equal to 1"),
        ("protocol.start", "hot", "protocol.start is 'hot'; it must be 'uniform' or 'copy'"),
        ("protocol.patterns_at", [7], "protocol.patterns_at has 7, which is not a value"),
        ("protocol.sweep", 7, "unknown key protocol.sweep; did you mean sweeps?"),
        ("run.seed", -1, "run.seed is -1; it must be greater than or equal to 0"),
        ("run.seed", 1.5, "run.seed is 1.5"),
        ("run.sede", 1, "unknown key run.sede; did you mean seed?"),
    ],
)
def test_wrong_settings_are_named(key, value, sentence):
    with pytest.raises(JobError) as error:
        jobtext.parse(changed(key, value), "my.toml")
    assert str(error.value).startswith("my.toml: ")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("model", "table [model] is missing"),
        ("protocol", "table [protocol] is missing"),
        ("protocol.kind", "protocol.kind is missing; it must be one of"),
        ("protocol.P", "protocol.P is missing"),
        ("protocol.P.stop", "protocol.P.stop is missing"),
    ],
)
def test_missing_settings_are_named(key, sentence):
    table = copy.deepcopy(GOOD)
    *parents, last = key.split(".")
    inner = table
    for parent in parents:
        inner = inner[parent]
    del inner[last]
    with pytest.raises(JobError) as error:
        jobtext.parse(table, "my.toml")
    assert sentence in str(error.value)


def test_overrides_win_and_are_kept(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps(GOOD))
    job, text = jobtext.load(path, ["model.L=12", "protocol.sweeps=[5, 6]", "run.seed=4"])
    assert job.model.L == 12
    assert job.protocol.sweeps == (5, 6)
    assert jobtext.parse_text(text, "text") == job
    with pytest.raises(JobError, match=r"--set L: expected TABLE.KEY=VALUE"):
        jobtext.load(path, ["L"])
    with pytest.raises(JobError, match="L is a value, not a table"):
        jobtext.load(path, ["model.L.x=1"])


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(JobError, match=r"cannot read job file .*none.toml: No such file"):
        jobtext.load(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[model\nL = 3")
    with pytest.raises(JobError, match=r"broken.toml is not valid TOML"):
        jobtext.load(broken)
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(JobError, match="it is not UTF-8 text"):
        jobtext.load(broken)


@pytest.mark.parametrize("path", sorted((ROOT / "jobs").rglob("*.toml")), ids=lambda p: p.stem)
def test_shipped_jobs_are_valid(path):
    job, _ = jobtext.load(path)
    assert job.plan().total_sweeps > 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("protocol.kind", []),
        ("protocol.P", 10**400),
        ("protocol.P", 1e308),
        ("protocol.chi", 5e-324),
        ("protocol.sweeps", 10**30),
        ("protocol.replicas", 10**9),
        ("protocol.equilibrate", 10**30),
        ("protocol.patterns_at", ["100"]),
        ("run.seed", 2**64),
        ("run.commit_seconds", True),
        ("model.L", 2**70),
        ("model.g_w", 1e-300),
    ],
)
def test_what_cannot_be_sampled_is_refused(key, value):
    with pytest.raises(JobError) as error:
        jobtext.parse(changed(key, value), "my.toml")
    assert len(str(error.value)) < 300


def test_hostile_text_is_one_sentence(tmp_path):
    path = tmp_path / "job.toml"
    for text in ("x = " + "[" * 5000, "x = " + "1" * 5000):
        path.write_text(text)
        with pytest.raises(JobError, match="is not valid TOML"):
            jobtext.load(path)
    path.write_bytes(b"\xef\xbb\xbf" + tomli_w.dumps(GOOD).encode())
    assert jobtext.load(path)[0].model.L == 8
    with pytest.raises(JobError, match="one setting at a time"):
        jobtext.load(path, ["model.L=8\nx=3"])
