"""The view `verify`: readings, differences, their errors, against runs and laws that are known."""

import io
import json

import numpy as np
import pytest
import tiny
from rich.console import Console
from typer.testing import CliRunner

from mcattn import action, coexistence, continuation, data, minima, phases, problems
from mcattn.analysis import differences, expected, reading, verify, verify_table, views
from mcattn.analysis.loop import DOWN, UP
from mcattn.analysis.reading import MIXED, Method, Reading
from mcattn.cli import app
from mcattn.continuation import Jump
from mcattn.data import Data
from mcattn.errors import RunFileError
from mcattn.model import CopyModel
from mcattn.runfile import open_run

MODEL = CopyModel(8, 6, g_s=10, g_w=0.01)  # of tiny.py
LINEAR = CopyModel(12, 4, "linear", 1, 1, 0.1)
PATH = [84, 95, 98, 104, 98, 90, 84]
WARM = [84, 110, 97, 84]
SETS = {"seed": 1, "sets": 2}


def carry_out(path, protocol, model=None, source=SETS):
    table = {**tiny.TABLE, "data": source, "protocol": protocol}
    if model:
        table["model"] = {k: v for k, v in vars(model).items() if v is not None}
    checked, text = tiny.of_table(table)
    tiny.run.start(checked, text, path, tiny.Serial(), tiny.run.Watch())
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    train = {"kind": "train", "P": PATH, "replicas": 2, "every": 50}
    jobs = {
        "adam": {**train, "steps": 1000},
        "sgld": {
            **train, "P": WARM, "optimiser": "sgld", "chi": 200.0, "steps": 500,
            "thermalize": 200, "every": 5, "replicas": 8,
        },
        "chain": {
            "kind": "hysteresis", "action": "exact", "P": WARM, "chi": 200.0, "sweeps": [200],
            "thermalize": 50, "equilibrate": 50, "replicas": 8,
        },
    }  # fmt: skip
    return {name: carry_out(folder / f"{name}.h5", job) for name, job in jobs.items()}


@pytest.fixture(scope="module")
def result(files):
    (found,) = verify.analyze([open_run(path) for path in files.values()])
    return found


def pick(result, part, quantity=None, near=None):
    (one,) = [c for c in result.comparisons if part in c.name]
    return [
        d
        for d in one.differences
        if (quantity is None or d.quantity == quantity) and (near is None or d.near == near)
    ]


def test_training_ends_in_the_minima_of_its_data_sets(result):
    found = pick(result, "Adam - minima", near=False)
    assert {one.phase for one in found} == {"uniform", "copy"}
    assert {one.quantity for one in found} == {"m", "q", "loss", "H"}
    assert max(one.largest for one in found) < 5e-4


def test_minima_of_other_data_sets_are_told_apart(result, files):
    """The control: the same comparison with the wrong data sets."""
    method = reading.read(open_run(files["adam"]))
    wrong = [
        continuation.Branches(problems.DataSet(MODEL, data.draw(MODEL, 130, seed)))
        for seed in (7, 8)
    ]
    rows = [one.table(result.P) for one in wrong]
    own = tuple(
        {phase: dict(zip(result.P, side, strict=True)) for phase, side in enumerate(pair)}
        for pair in rows
    )
    found = differences.trained_and_minima(method, ("m",), own, [one.jump() for one in wrong])
    assert max(one.largest for one in found.differences if not one.near) > 5e-3


def test_training_leaves_a_branch_where_it_ends(result):
    assert {(turn.branch, turn.set) for turn in result.turns} == {
        (way, s) for way in (UP, DOWN) for s in (0, 1)
    }
    for turn in result.turns:
        assert abs(turn.switched - turn.end) <= turn.half + 0.5
    population = result.theory["P_star"]
    assert all(
        abs(turn.switched - population) > turn.half for turn in result.turns if turn.branch == UP
    )


def test_langevin_dynamics_and_monte_carlo_agree(result):
    """|z| < 4.5 over some ten numbers with 12 and more degrees of freedom, in both phases."""
    found = pick(result, "SGLD - Monte Carlo")
    assert {one.phase for one in found} == {"uniform", "copy"}
    assert max(abs(one.pull) for one in found) < 4.5


def test_the_test_loss_of_drawn_weights_is_what_langevin_dynamics_has(tmp_path):
    """The control: the loss of mean weights is not."""
    model = CopyModel(4, 3, "linear", 1, 1, 0.5)
    common = {"P": [12, 16], "chi": 5.0, "replicas": 16}
    dynamics = {"optimiser": "sgld", "steps": 1000, "thermalize": 200, "every": 5}
    chain = {"kind": "hysteresis", "action": "exact", "sweeps": [300], "thermalize": 50}
    paths = [
        carry_out(tmp_path / "sgld.h5", {"kind": "train", **common, **dynamics}, model),
        carry_out(tmp_path / "chain.h5", {**common, **chain}, model),
    ]
    sgld, run = reading.read(open_run(paths[0])), open_run(paths[1])
    names = ("alpha", "beta", "q", "loss")
    found = differences.sampled_and_sampled(sgld, reading.read(run), names).differences
    assert max(abs(one.pull) for one in found) < 4.5
    run.exact["drawn_loss"] = run.exact["loss"]
    wrong = differences.sampled_and_sampled(sgld, reading.read(run), ("loss",)).differences
    assert min(abs(one.pull) for one in wrong) > 8


def test_monte_carlo_is_compared_with_theory_in_each_phase(result):
    found = pick(result, "Monte Carlo - theory")
    assert {one.phase for one in found} == {"uniform", "copy"}
    # Two data sets of 90 sequences are not the population, but near it.
    assert max(abs(one.difference) for one in found) < 0.05


def test_tables_json_and_figure(files, result, tmp_path):
    console = Console(width=200, record=True, file=io.StringIO())
    for title, table in verify_table.tables(result):
        console.print(title, table)
    text = console.export_text()
    for word in ("minima of data sets - landscape", "P_lo", "P_hi", "SGLD", "rms pull"):
        assert word in text
    told = views.json_text([result])
    back = json.loads(told, parse_constant=lambda word: pytest.fail(word))
    assert {one["name"] for one in back["methods"]} == {"Adam", "SGLD", "Monte Carlo"}
    names = [str(path) for path in files.values()]
    drawn = CliRunner().invoke(
        app, ["plot", "--view", "verify", *names, "-o", str(tmp_path / "v.png")]
    )
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "v.png").stat().st_size > 20000


def test_linear_attention_follows_its_lowest_minimum(tmp_path):
    train = {"kind": "train", "P": [8, 14, 40], "replicas": 6, "steps": 1500, "every": 50}
    scratch = {**train, "path": "scratch", "start": "prior"}
    runs = [
        carry_out(tmp_path / "path.h5", {**train, "replicas": 2}, LINEAR),
        carry_out(tmp_path / "scratch.h5", scratch, LINEAR),
    ]
    (found,) = verify.analyze([open_run(path) for path in runs])
    for part in ("Adam - minima", "Adam from scratch - minima"):
        assert max(abs(one.difference) for one in pick(found, part)) < 0.01, part
        assert max(one.largest for one in pick(found, part, "H")) < 1e-4, part
    shares = next(m.reached for m in found.methods if m.scratch)
    assert all(0 < share <= 1 for share in shares)


@pytest.mark.parametrize("chi", [np.inf, 50.0])
def test_following_the_lowest_minimum_finds_what_searching_does(chi):
    problem = problems.DataSet(LINEAR, data.draw(LINEAR, 60, 3), chi)
    P = [10, 16, 55]
    followed = continuation.lowest(problem, P, 4)
    for x, one in zip(P, followed, strict=True):
        lowest = minima.search(problem, x, 4).lowest
        assert one.F_per_chi == pytest.approx(lowest.F_per_chi, rel=1e-9)


def test_linear_attention_differs_from_the_population_by_one_over_P():
    """Four times the sequences and kappa: the same population action, a quarter of the way off."""
    off = []
    for kappa in (1, 4):
        model, P = CopyModel(32, 4, "linear", kappa, 1, 0.1), 40 * kappa
        known = expected.expected(model, np.inf, [P]).phases[phases.UNIFORM]["beta"][0]
        found = minima.search(problems.DataSet(model, data.draw(model, P, 1)), P, 1).lowest
        off.append(found.beta - known)
    assert off[0] > 0.05
    assert 3 < off[0] / off[1] < 5


def test_expected_phases_are_those_of_the_transition():
    model, chi = CopyModel(), 10.0
    known = coexistence.coexistence(model, chi)
    P = known.P_equal_weight.value
    at = expected.expected(model, chi, [0.9 * P, P]).at([P])
    assert at[phases.UNIFORM]["m"][0] == pytest.approx(known.m_minus.value, rel=1e-4)
    assert at[phases.COPY]["m"][0] == pytest.approx(known.m_plus.value, rel=1e-4)


@pytest.mark.parametrize("tokens", [None, (0.5, 0.3, 0.2)])
def test_what_drawn_weights_add_to_the_loss(tokens):
    model, P, chi = CopyModel(6, 3, "linear", 0.7, 2, 0.4, tokens), 20.0, 5.0
    X = np.array([0.2, 0.5, 0.7, 0.9, 3.0])
    p = model.probabilities
    gram = X[1] * (np.diag(p) - np.outer(p, p)) + X[3] * np.outer(p, p)
    cross = X[0] * (np.diag(p) - np.outer(p, p)) + X[2] * np.outer(p, p)
    inverse = np.linalg.inv(P * gram + model.kappa / model.g_w * np.eye(3))
    mean = P * cross @ inverse
    assert action.expected_loss(mean, X, model) == pytest.approx(action.test_loss(X, model, P))
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(inverse * model.kappa / chi)
    noise = rng.standard_normal((20000, 3, 3)) @ root.T
    noise = np.concatenate([noise, -noise])  # the odd part cancels
    drawn = action.expected_loss(mean + noise, X, model)
    added = drawn.mean() - action.test_loss(X, model, P)
    error = drawn[:20000].std() / np.sqrt(20000)
    assert abs(added - action.scatter_loss(X, model, P, chi)) < 4 * error
    assert error < 0.02 * added


def fake(values, members, name="SGLD", phase=0, rng=None):
    """A method with one reading of members' values, shape (s, r), around their sets' means."""
    variances = values.var(axis=1, ddof=1) / members
    one = Reading(
        100.0, UP, np.full(len(values), phase), {"m": values.mean(axis=1)}, {"m": variances}
    )
    return Method(
        name, False, False, 10.0, Data(seed=1, sets=len(values)), members, (one,), (np.nan,)
    )


def test_sampling_errors_mean_what_they_say():
    """1000 pairs of runs on 4 data sets that scatter far more than sampling does."""
    rng, pulls = np.random.default_rng(1), []
    for _ in range(1000):
        sets = rng.normal(0, 5, (4, 1))
        one, other = (fake(sets + rng.normal(0, s, (4, r)), r) for s, r in ((1, 4), (2, 8)))
        (d,) = differences.sampled_and_sampled(one, other, ("m",)).differences
        pulls.append(d.pull)
    inside = np.mean(np.abs(pulls) < 1)
    assert abs(inside - 0.683) < 4 * np.sqrt(0.683 * 0.317 / 1000)


def test_an_error_is_never_smaller_than_that_of_sampling():
    values = np.array([[0.0, 2.0], [2.0, 0.0]])  # both sets have the same mean by chance
    theory = {phases.UNIFORM: {"m": np.array([0.5])}}
    (d,) = differences.sampled_and_theory(fake(values, 2), ("m",), theory).differences
    assert d.error == pytest.approx(np.sqrt(2) / 2)
    assert d.pull == pytest.approx(0.5 / d.error)


def test_turns_of_each_data_set():
    """Set 0 turns between 100 and 110, set 1 is mixed at 110, set 2 stays."""
    phase = [[0, 0, 0], [1, MIXED, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]]
    way, P = [UP, UP, UP, DOWN, DOWN], [100.0, 110.0, 130.0, 90.0, 70.0]
    readings = tuple(
        Reading(x, w, np.array(p), {}, {}) for x, w, p in zip(P, way, phase, strict=True)
    )
    method = Method("Adam", False, False, np.inf, Data(seed=1, sets=3), 1, readings, (1.0,) * 5)
    jumps = [Jump((79, 80), (90, 91), (105, 106), 90.5)] * 3
    found = {(t.set, t.branch): (t.switched, t.half) for t in differences.turns(method, jumps)}
    assert found == {
        (0, UP): (105.0, 5.0),
        (0, DOWN): (110.0, 20.0),
        (1, UP): (115.0, 15.0),
        (1, DOWN): (80.0, 10.0),
    }


def test_what_cannot_be_compared_is_refused(files, tmp_path):
    other = carry_out(
        tmp_path / "other.h5",
        {"kind": "train", "P": [90, 95], "steps": 100, "replicas": 2},
        source={"seed": 5, "sets": 2},
    )
    for paths, words in (
        (
            [files["adam"], other],
            "2 data set.* from seed 5 on, .* from seed 1 on; expected the same",
        ),
        ([tiny_run(tmp_path)], 'population action; expected action = "exact"'),
    ):
        with pytest.raises(RunFileError, match=words):
            verify.analyze([open_run(path) for path in paths])


def tiny_run(folder):
    tiny.carry_out(folder / "population.h5")
    return folder / "population.h5"


def test_one_phase_and_a_single_member_are_shown_too(tmp_path):
    model = CopyModel(6, 4, g_w=0.1)
    train = {"kind": "train", "P": [20, 40], "steps": 300, "every": 50, "replicas": 1}
    chain = {"kind": "hysteresis", "action": "exact", "chi": 30.0, "P": [20, 40], "replicas": 1}
    more = {"sweeps": [50], "thermalize": 10, "equilibrate": 10}
    one = {"seed": 3, "sets": 1}
    paths = [
        carry_out(tmp_path / "train.h5", train, model, one),
        carry_out(tmp_path / "chain.h5", chain | more, model, one),
    ]
    for chosen in (paths, paths[1:]):
        words = ["--view", "verify", *map(str, chosen)]
        told = CliRunner().invoke(app, ["analyze", *words])
        assert told.exit_code == 0, told.output
        drawn = CliRunner().invoke(app, ["plot", *words, "-o", str(tmp_path / "one.png")])
        assert drawn.exit_code == 0, drawn.output
