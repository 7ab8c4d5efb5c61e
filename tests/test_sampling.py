"""The sampler against exact averages, for every kernel, with controls that must fail."""

import functools

import exact
import numpy as np
import pytest
from scipy import stats

import mcattn
from mcattn.analysis import series
from mcattn.errors import JobError, ModelError
from mcattn.model import CopyModel
from mcattn.protocols import fixed
from mcattn.ranks import Serial
from mcattn.replicas import Replicas
from mcattn.sampler import TARGET_ACCEPTANCE, Sampler

CASES = exact.small_cases()
# 18 cases with 5 numbers each at fixed seeds: a right sampler passes |z| < 4 with 99.4 %.
Z_LIMIT = 4.0


@functools.cache
def chains(case):
    """Rows of 64 chains of 6000 sweeps, both phases as starts; shape (t, r, 5)."""
    _, model, P, chi = CASES[case]
    return np.concatenate(
        [
            mcattn.sample(model, P, chi, 32, 6000, 400, every=2, seed=case, start=start).X
            for start in ("uniform", "copy")
        ],
        axis=1,
    )


def scores(X, reference):
    """z of <m>, <q>, var m, <s2> and <m^2> against exact values."""
    m, q, _, _, s2 = np.moveaxis(X, -1, 0)
    columns = {
        "m": m,
        "q": q,
        "var_m": (m - reference["m"]) ** 2,
        "s2": s2,
        "m2": m * m,
    }
    z = {}
    for name, column in columns.items():
        estimate = series.mean(column)
        z[name] = (estimate.value - reference[name]) / estimate.error
    return z


@pytest.mark.parametrize("case", range(len(CASES)), ids=[name for name, *_ in CASES])
def test_averages_are_exact(case):
    _, model, P, chi = CASES[case]
    z = scores(chains(case), exact.averages(model, P, chi))
    assert max(abs(value) for value in z.values()) < Z_LIMIT, z


@pytest.mark.parametrize("factor", ["data_factor", "count_factor"])
@pytest.mark.parametrize("name", ["softmax3-mixed", "softmax2-tokens", "linear3-above"])
def test_a_wrong_action_would_be_seen(name, factor):
    """Control: the same rows against an action that is 3 % off must fail."""
    case = [row[0] for row in CASES].index(name)
    _, model, P, chi = CASES[case]
    z = scores(chains(case), exact.averages(model, P, chi, **{factor: 1.03}))
    assert max(abs(value) for value in z.values()) > Z_LIMIT, z


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_biased_states_are_exact(attention):
    model = CopyModel(3, 3, attention, 1.0, 2.0, 0.5)
    center, strength = 0.55, 60.0
    plan = fixed([8.0], [5.0], [center], [strength], 6000, 400, 2, 64, "uniform", 0)
    sampler = Sampler(plan, model, 3, Serial(), 0, 64, None)
    X = np.concatenate([sampler.advance().X for _ in iter(lambda: sampler.finished, True)])
    reference = exact.averages(model, 8.0, 5.0, center, strength)
    assert max(abs(z) for z in scores(X, reference).values()) < Z_LIMIT
    free = exact.averages(model, 8.0, 5.0)
    assert max(abs(z) for z in scores(X, free).values()) > 20


def exact_patterns(model, P, chi, count, rng):
    """Independent exact draws of the scores by rejection from the prior, shape (n, a, b)."""
    kept = []
    L = model.L
    grid = rng.normal(size=(100_000, L, L)) * np.sqrt(model.g_s / chi)
    floor = (
        exact.action(grid, model, P, chi) - chi * (grid**2).sum((1, 2)) / (2 * model.g_s)
    ).min()
    while sum(map(len, kept)) < count:
        S = rng.normal(size=(50_000, L, L)) * np.sqrt(model.g_s / chi)
        F = exact.action(S, model, P, chi) - chi * (S**2).sum((1, 2)) / (2 * model.g_s)
        kept.append(S[rng.random(len(S)) < np.exp(floor - 0.2 - F)])
    return np.concatenate(kept)[:count]


@pytest.mark.parametrize(
    ("tokens", "fresh_steps"), [(None, False), ((0.6, 0.3, 0.1), False), (None, True)]
)
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_sweeps_leave_the_distribution_alone(attention, tokens, fresh_steps):
    """Stationarity of the move: exact draws are exact draws after three sweeps.

    Kolmogorov-Smirnov on 8192 independent replicas; 5 numbers, limit p > 1e-4.
    """
    model = CopyModel(2, 3, attention, 1.0, 2.0, 1.0, tokens)
    P, chi, count = 6.0, 2.0, 8192
    rng = np.random.default_rng(8)
    draws = exact_patterns(model, P, chi, 2 * count, rng)
    before = mcattn.action.order_parameters(draws[count:], attention)

    def moved(P_used):
        replicas = Replicas(model, 5, 0, count, fresh_steps)
        replicas.start("uniform", chi)
        replicas.restore(draws[:count], replicas.stream_words())
        replicas.set_states(P_used, chi, 0.0, 0.0, 1.5)
        return replicas.advance(3, every=3)[0][0]

    after, wrong = moved(P), moved(1.4 * P)
    columns = (0, 1, 4) if attention == "softmax" else (0, 1, 2, 3, 4)
    p = [stats.ks_2samp(before[:, i], after[:, i]).pvalue for i in columns]
    assert min(p) > 1e-4, p
    assert min(stats.ks_2samp(before[:, i], wrong[:, i]).pvalue for i in columns) < 1e-4


def test_a_move_without_its_reverse_would_be_seen():
    """Control: a rare step that no reverse step balances must fail."""
    _, model, P, chi = CASES[2]
    replicas = Replicas(model, 1, 0, 64)
    replicas.start("uniform", chi)
    replicas.set_states(P, chi, 0.0, 0.0, 1.0)
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(1500):
        replicas.advance(2, every=2)
        S = replicas.scores()
        S[rng.random(64) < 0.05, 0, 0] += 0.3
        replicas.restore(S, replicas.stream_words())
        rows.append(mcattn.action.order_parameters(S, model.attention))
    z = scores(np.array(rows), exact.averages(model, P, chi))
    assert max(abs(value) for value in z.values()) > Z_LIMIT


@pytest.mark.parametrize(("P", "start"), [(300.0, "uniform"), (400.0, "copy")])
def test_the_step_is_tuned_to_the_target(P, start):
    model = CopyModel()
    X, acceptance = mcattn.sample(model, P, 10.0, 32, 200, 400, start=start)
    assert X.shape == (200, 32, 5)
    assert abs(acceptance - TARGET_ACCEPTANCE) < 0.02


def test_the_step_reaches_its_target_from_far_away():
    """Weak scores at a tiny P: the default step fits the prior, the copy phase wants less."""
    for P, chi in [(0.01, 0.5), (4000.0, 200.0)]:
        acceptance = mcattn.sample(CopyModel(), P, chi, 8, 200, 600, start="copy").acceptance
        assert abs(acceptance - TARGET_ACCEPTANCE) < 0.05


def test_the_step_is_frozen_while_rows_are_taken():
    plan = fixed([300.0], [10.0], [0.0], [0.0], 96, 64, 1, 8, "uniform", 0)
    sampler = Sampler(plan, CopyModel(), 0, Serial(), 0, 8, None)
    steps = []
    while not sampler.finished:
        sampler.advance()
        steps.append(float(sampler.tables.step[0]))
    assert len(set(steps[:2])) == 2
    assert len(set(steps[1:])) == 1


def test_equal_seeds_repeat_and_others_do_not():
    model = CopyModel(4, 4)
    one = mcattn.sample(model, 50, 10, 4, 50, 50, seed=1).X
    assert (one == mcattn.sample(model, 50, 10, 4, 50, 50, seed=1).X).all()
    assert (one != mcattn.sample(model, 50, 10, 4, 50, 50, seed=2).X).any()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"P": -1}, "P is -1; it must be finite and > 0"),
        ({"chi": float("nan")}, "chi is nan; it must be finite"),
        ({"replicas": 0}, "replicas is 0; it must be an integer >= 1"),
        ({"sweeps": 2.5}, "sweeps is 2.5; it must be an integer >= 1"),
        ({"thermalize": -1}, "thermalize is -1; it must be an integer >= 0"),
        ({"every": 200}, "every is 200; it must be at most sweeps = 100"),
        ({"start": "hot"}, "start is 'hot'; it must be one of uniform, copy"),
        ({"seed": -3}, "seed is -3; it must be an integer >= 0"),
    ],
)
def test_bad_arguments_are_named(arguments, sentence):
    good = {"P": 50.0, "chi": 10.0, "replicas": 4, "sweeps": 100}
    with pytest.raises((JobError, ModelError), match=sentence.replace("(", r"\(")):
        mcattn.sample(CopyModel(), **{**good, **arguments})


def test_scores_out_of_range_are_reported():
    from mcattn.errors import SamplingError

    with pytest.raises(SamplingError, match="g_s/chi is too large"):
        mcattn.sample(CopyModel(2, 2, "softmax", 1.0, 1e6, 1.0), 1.0, 1.0, 8, 50, 50)
