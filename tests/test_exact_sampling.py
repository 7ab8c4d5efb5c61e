"""Sampling the exact action of data sets: kernels, both samplers and runs against quadrature."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
import tiny

import mcattn
from mcattn import action, data, run
from mcattn.exact_replicas import ExactReplicas, PairTables, packed
from mcattn.kernels import data_action, data_hmc, data_metropolis
from mcattn.model import CopyModel
from mcattn.protocols import States
from mcattn.ranks import Serial

MODELS = {
    "softmax": CopyModel(2, 2, "softmax", 1.0, 2.0, 1.0),
    "linear": CopyModel(2, 2, "linear", 1.0, 1.0, 1.0),
}
P, CHI = 5, 2.0


# --- kernels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize(("L", "V", "rows"), [(2, 2, 3), (5, 3, 40), (8, 9, 200), (16, 16, 310)])
def test_kernel_equals_the_formula(attention, L, V, rows):
    """Value, its two parts and gradient, with a pull on m and tau, with and without padding."""
    model, chi, pull = CopyModel(L, V, attention, 0.7, 2.0, 0.4), 3.0, (0.3, -0.2)
    T = data.counts(data.draw(model, rows, 1), V)
    S = np.zeros((L, data_action.wide(L)))
    S[:, :L] = np.random.default_rng(L).normal(size=(L, L))
    rooms, grad = data_action.space(L, V), np.empty_like(S)
    softmax = attention == "softmax"
    energy, log_det = data_action.evaluate(S, packed(T), rows, 0.7, 2.0, 0.4, softmax, rooms)
    data_action.slope(S, packed(T), chi, 0.7, 2.0, *pull, softmax, rooms, grad)
    value, slope = action.exact_per_chi(S[:, :L], T, model, rows, chi)
    cold = action.exact_per_chi(S[:, :L], T, model, rows, np.inf)[0]
    assert energy == pytest.approx(cold, rel=1e-12)
    assert chi * energy + log_det == pytest.approx(chi * value, rel=1e-12)
    A = action.pattern(S[:, :L], attention)
    extra = (pull[0] * np.roll(np.eye(L), -1, axis=1) + pull[1]) / L
    if softmax:
        extra = A * (extra - (A * extra).sum(axis=1, keepdims=True))
    expected = chi * slope + extra
    np.testing.assert_allclose(grad[:, :L], expected, rtol=1e-9, atol=1e-12 * abs(expected).max())
    assert (grad[:, L:] == 0).all()


def test_tables_of_nested_sets_do_not_depend_on_the_order_of_asking():
    model = CopyModel(3, 5)
    tokens = [data.draw(model, 50, seed) for seed in range(2)]
    tables = PairTables(tokens, 5)
    for k, rows in ((0, 20), (1, 50), (0, 50), (0, 1), (0, 30), (1, 20)):
        expected = packed(data.counts(tokens[k][:rows], 5))
        np.testing.assert_array_equal(tables(k, rows), expected)


# --- averages --------------------------------------------------------------------------------


@cache
def quadrature(attention, seed=0, rows=P, chi=CHI, center=0.0, strength=0.0, fewer=0):
    """Averages of `observed` over the four scores, by Gauss-Hermite nodes of their prior.

    For softmax attention, of a row's difference and sum: the data do not see the sum, and two
    nodes of it are exact for |S|^2.
    """
    model = MODELS[attention]
    counts, turn = (18 - fewer,) * 2, np.eye(2)
    if attention == "softmax":
        counts, turn = (30 - fewer, 2), np.array([[-1, 1], [1, 1]]) / np.sqrt(2)
    (d, of_d), (s, of_s) = (np.polynomial.hermite_e.hermegauss(n) for n in counts)
    x = np.array(list(itertools.product(d, s, d, s))).reshape(-1, 2, 2)
    S = np.sqrt(model.g_s / chi) * x @ turn
    ln_w = np.log(np.array(list(itertools.product(of_d, of_s, of_d, of_s)))).sum(axis=1)
    T = data.counts(data.draw(model, rows, seed), 2)
    energy, log_det = (
        action.exact_per_chi(S, T, model, rows, np.inf)[0],
        chi * action.exact_per_chi(S, T, model, rows, chi)[0],
    )
    X = action.order_parameters(S, attention)
    log_det = log_det - chi * energy
    prior = X[:, 4] / (2 * model.g_s)
    ln_w += -chi * (energy - prior) - log_det - strength / 2 * (X[:, 0] - center) ** 2
    weight = np.exp(ln_w - ln_w.max())
    values = observed(np.column_stack([X, energy, log_det]))
    return (weight @ values) / weight.sum()


def observed(X):
    """m, m^2, q, tau^2, |S|^2, energy and log_det of rows (..., x)."""
    m, q, tau, _, s2, energy, log_det = np.moveaxis(X[..., :7], -1, 0)
    return np.stack([m, m * m, q, tau * tau, s2, energy, log_det], axis=-1)


def pulls(X, expected):
    """|z| of every average that varies, from the scatter over replicas; X has shape (t, r, x).

    With 64 replicas |z| > 4.5 happens once in 30000 numbers.
    """
    means = observed(X).mean(axis=0)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    varies = error > 1e-9
    return abs(means.mean(axis=0) - expected)[varies] / error[varies]


def states(chi=CHI, center=0.0, strength=0.0):
    one = np.ones(1)
    none = np.zeros(1, dtype=int)
    return States(P * one, chi * one, center * one, strength * one, none, none, none, none)


@cache
def hmc(attention, chi=CHI, bias=(0.0, 0.0), sweeps=1500, count=64, first=0, sets=1, split=1):
    """Rows (t, r, x) of replicas in `split` blocks, and the sampler of the last."""
    model = MODELS[attention]
    tables = PairTables([data.draw(model, P, seed) for seed in range(sets)], 2)
    blocks = []
    for begin in range(first, first + count, count // split):
        own = np.arange(begin, begin + count // split)
        replicas = ExactReplicas(model, tables, own % sets, 1, begin)
        replicas.start("uniform", np.full(len(own), chi))
        step = np.array([0.5 * replicas.default_step(chi)])
        replicas.assign(states(chi, *bias), step, np.zeros(len(own), dtype=int))
        replicas.advance(50)
        blocks.append(replicas.advance(sweeps, every=1)[0])
    return np.concatenate(blocks, axis=1), replicas


def metropolis(attention, sweeps=1500, count=64):
    """Rows (t, r, x) of single-score Metropolis."""
    model = MODELS[attention]
    T = data.counts(data.draw(model, P, 0), 2)
    out = np.zeros((count, sweeps, data_hmc.COLUMNS))
    state = np.array([P, CHI, 0.0, 0.0, 1.5])
    for r in range(count):
        rng = np.random.default_rng(r)
        words = rng.integers(1, 2**63, size=4).astype(np.uint64)
        S = rng.normal(size=(2, 2))
        numbers = (model.kappa, model.g_s, model.g_w, attention == "softmax")
        data_metropolis.run(S, T, state, words, *numbers, np.zeros((50, 7)), 50, 1)
        data_metropolis.run(S, T, state, words, *numbers, out[r], sweeps, 1)
        cold = action.exact_per_chi(S, T, model, P, np.inf)[0]
        assert out[r, -1, 5] == pytest.approx(cold, rel=1e-9)
    return out.swapaxes(0, 1)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_quadrature_has_converged(attention):
    rough, fine = quadrature(attention, fewer=2), quadrature(attention)
    np.testing.assert_allclose(rough, fine, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_both_samplers_equal_quadrature(attention):
    assert pulls(hmc(attention)[0], quadrature(attention)).max() < 4.5
    assert pulls(metropolis(attention), quadrature(attention)).max() < 4.5


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_a_wrong_temperature_data_set_or_bias_is_told_apart(attention):
    """The control: each must fail the test above."""
    X = hmc(attention)[0]
    assert pulls(X, quadrature(attention, chi=1.1 * CHI)).max() > 8
    assert pulls(X, quadrature(attention, seed=1)).max() > 8
    assert pulls(X, quadrature(attention, center=0.8, strength=2.0)).max() > 8


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("tokens", [None, (0.6, 0.3, 0.1)])
def test_losses_are_those_of_the_posterior_of_the_weights(attention, tokens):
    model = CopyModel(4, 3, attention, 0.7, 2.0, 0.4, tokens)
    table = data.draw(model, 9, 0)
    replicas = ExactReplicas(model, PairTables([table], 3), np.zeros(2, dtype=int), 1, 0)
    replicas.start("copy", np.full(2, CHI))
    one = np.ones(1)
    zero = np.zeros(1, dtype=int)
    replicas.assign(
        States(9 * one, CHI * one, 0 * one, 0 * one, zero, zero, zero, zero),
        0.3 * one,
        zero[[0, 0]],
    )
    rows = replicas.advance(5, every=1)[0][-1]
    np.testing.assert_allclose(replicas.rows(), rows, rtol=1e-9)
    for S, row in zip(replicas.scores(), rows, strict=True):
        x = np.eye(3)[table]
        z = np.einsum("ab,mbv->mav", action.pattern(S, attention), x)
        y = np.roll(x, 1, axis=1)
        precision = np.einsum("mav,maw->vw", z, z) / 4 + model.kappa / model.g_w * np.eye(3)
        mean = np.einsum("mav,maw->vw", y, z) / 4 @ np.linalg.inv(precision)
        assert row[7] == pytest.approx(float(action.expected_loss(mean, row[:5], model)), rel=1e-9)
        # The loss is a square in W: its mean over a Gaussian is that over the ends of its axes.
        axes = np.linalg.cholesky(np.linalg.inv(precision) * model.kappa / CHI).T
        ends = [
            mean + sign * np.sqrt(9) * np.outer(np.eye(3)[v], axis)
            for v in range(3) for axis in axes for sign in (-1, 1)
        ]  # fmt: skip
        drawn = np.mean([action.expected_loss(W, row[:5], model) for W in ends])
        assert row[8] == pytest.approx(drawn, rel=1e-9)


def test_a_bias_acts():
    X = hmc("softmax", bias=(0.8, 20.0))[0]
    assert pulls(X, quadrature("softmax", center=0.8, strength=20.0)).max() < 4.5


def test_chains_do_not_depend_on_the_block():
    """Six replicas on three data sets, at once and in pairs: bit for bit the same."""
    whole, replicas = hmc("softmax", sweeps=40, count=6, sets=3)
    parts, last = hmc("softmax", sweeps=40, count=6, sets=3, split=3)
    assert whole.tobytes() == parts.tobytes()
    assert replicas.stream_words()[4:].tobytes() == last.stream_words().tobytes()
    assert len(np.unique(whole[-1, :, 0])) == 6


def test_trajectories_conserve_the_action_to_second_order():
    """Half the step, a quarter of the error: the force is the derivative of what is accepted."""
    model = CopyModel(6, 5, "softmax", 1.0, 3.0, 0.1)
    table = packed(data.counts(data.draw(model, 60, 2), 5))
    rng, rooms, errors = np.random.default_rng(4), data_action.space(6, 5), []
    S0, v0 = np.zeros((2, 6, 8))
    S0[:, :6], v0[:, :6] = rng.normal(size=(2, 6, 6))
    state = np.array([60, 10.0, 3.0, 0.5, 0.0, 1.0, 0.0, 0.0])
    numbers = (state, 1.0, 3.0, 0.1, True)
    for step in (0.02, 0.01):
        S, v, grad = S0.copy(), v0.copy(), np.empty_like(S0)
        before = data_hmc.force(S, table, numbers, rooms, grad)[2] + data_hmc.kinetic(v)
        for _ in range(round(0.4 / step)):
            data_hmc.push(v, grad, -step / 2)
            data_hmc.push(S, v, step)
            F = data_hmc.force(S, table, numbers, rooms, grad)[2]
            data_hmc.push(v, grad, -step / 2)
        errors.append(F + data_hmc.kinetic(v) - before)
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


# --- runs ------------------------------------------------------------------------------------

FIXED = {
    "kind": "fixed", "P": [3, P], "chi": CHI, "replicas": 32, "sweeps": 1500, "thermalize": 200,
}  # fmt: skip
TEMPERING = {
    "kind": "tempering", "P": P, "chi": [1.0, 1.4, 2.0], "ladders": 32, "exchange_every": 3,
    "sweeps": 900, "thermalize": 99,
}  # fmt: skip
GRID = {**TEMPERING, "P": [3, 9], "chi": [1.0, 2.0], "grid": True}
SMALL = {"replicas": 6, "sweeps": 60, "thermalize": 40, "every": 3}
JOBS = {
    "fixed": {**FIXED, **SMALL, "P": [3, 7], "pattern_replicas": 3},
    "hysteresis": {
        **SMALL, "kind": "hysteresis", "P": {"start": 4, "stop": 8, "points": 2}, "chi": CHI,
    },
    "tempering": {
        **TEMPERING, "P": [4, 8], "chi": [1.0, 3.0], "states": 5, "ladders": 4,
        "sweeps": 60, "thermalize": 40,
    },
    "umbrella": {
        "kind": "umbrella", "P": 6, "chi": CHI, "range": [0.3, 0.7], "windows": 4, "ladders": 2,
        "sweeps": 60, "thermalize": 40, "tune_rounds": 1, "tune_sweeps": 100,
    },
}  # fmt: skip


def table(protocol, model="softmax", sets=2):
    return {
        "model": MODELS[model].to_dict() | {"tokens": [0.5, 0.5]},
        "protocol": {**protocol, "action": "exact"},
        "data": {"sets": sets},
        "run": {"seed": 4, "commit_seconds": 1e6, "commit_sweeps": 25},
    }


def carry_out(path, protocol, watch=None, **options):
    job, text = tiny.of_table(table(protocol, **options))
    run.start(job, text, path, Serial(), watch or run.Watch())
    return path


def rows_of(file):
    """Rows with energy and log_det, (t, r, x), of a finished run."""
    done = mcattn.open_run(file)
    extra = (done.exact["energy"][..., None], done.exact["log_det"][..., None])
    return done, np.concatenate([done.X, *extra], axis=-1)


@pytest.mark.parametrize("model", ["softmax", "linear"])
def test_a_fixed_run_equals_quadrature_on_every_set(tmp_path, model):
    done, X = rows_of(carry_out(tmp_path / "run.h5", FIXED, model=model))
    for k, seed in itertools.product((0, 1), (0, 1)):
        here = (done.state[0] == k) & (done.exact["set"] == seed)
        assert here.sum() == 16
        # 16 replicas: |t| > 5.5 happens once in 16000 numbers.
        rows = int(done.states["P"][k])
        assert pulls(X[:, here], quadrature(model, seed, rows)).max() < 5.5
        if rows == P:  # the first three sequences of both sets have the same action
            assert pulls(X[:, here], quadrature(model, 1 - seed, rows)).max() > 8


@pytest.mark.parametrize("protocol", [TEMPERING, GRID], ids=["chi", "grid"])
def test_exchanging_replicas_equal_quadrature(tmp_path, protocol):
    """Averages of ladders, each of one data set, in every state."""
    done, X = rows_of(carry_out(tmp_path / "run.h5", protocol))
    count = len(done.states["P"])
    assert (done.exchanges["accepted"].sum(axis=0) > 0.2 * done.exchanges["attempted"].sum(0)).all()
    ladders = done.state.shape[1] // count
    seeds = done.exact["set"].reshape(ladders, count)
    assert (seeds == seeds[:, :1]).all()
    # One replica of every ladder is in each state: its rows, in the order of ladders.
    order = np.argsort(done.state.reshape(-1, ladders, count), axis=-1)
    X = np.take_along_axis(X.reshape(len(X), ladders, count, -1), order[..., None], axis=2)
    for k, seed in itertools.product(range(count), (0, 1)):
        at = (seed, int(done.states["P"][k]), float(done.states["chi"][k]))
        assert pulls(X[:, seeds[:, 0] == seed, k], quadrature("softmax", *at)).max() < 5.5
        wrong = (1 - seed, *at[1:])
        if at[1] > 3:
            assert pulls(X[:, seeds[:, 0] == seed, k], quadrature("softmax", *wrong)).max() > 5.5


@pytest.mark.parametrize("kind", JOBS)
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, kind):
    whole = carry_out(tmp_path / "whole.h5", JOBS[kind])
    for stop in (3, 60):
        file = carry_out(tmp_path / f"{stop}.h5", JOBS[kind], tiny.stop_after(stop))
        assert not mcattn.open_run(file).complete
        tiny.continued(file)
        assert tiny.same(whole, file)


@pytest.mark.parametrize("kind", ["hysteresis", "tempering"])
def test_the_file_does_not_depend_on_the_ranks(tmp_path, kind):
    one = carry_out(tmp_path / "one.h5", JOBS[kind])
    job = tmp_path / "job.toml"
    job.write_text(tiny.of_table(table(JOBS[kind]))[1])
    done = tiny.command("run", job, "-o", tmp_path / "two.h5", ranks=2)
    assert done.returncode == 0, done.stderr
    assert tiny.same(one, tmp_path / "two.h5")


def test_stored_patterns_have_the_stored_action(tmp_path):
    done, X = rows_of(carry_out(tmp_path / "run.h5", JOBS["fixed"]))
    assert len(done.patterns["scores"]) == 3
    for S, r, k in zip(*(done.patterns[n] for n in ("scores", "replica", "state")), strict=True):
        rows, model = int(done.states["P"][k]), done.model
        tokens = data.draw(model, rows, int(done.exact["set"][r]))
        F = CHI * X[-1, r, 5] + X[-1, r, 6]
        assert action.exact(S, tokens, model, CHI) == pytest.approx(F, rel=1e-12)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"replicas": 5}, "protocol.replicas is 5; it must be a multiple of data.sets = 2"),
        ({"P": 5.5}, 'P has 5.5; with action = "exact" it counts sequences'),
        ({"P": 2e7}, r"P has 2e\+07; it must be at most 1e\+07"),
        ({"action": "exakt"}, "protocol.action .*'population' or 'exact'"),
        ({**JOBS["tempering"], "ladders": 3}, "protocol.ladders is 3; .*data.sets = 2"),
        ({**JOBS["tempering"], "states": 4}, "P has 5.33333; .*whole numbers"),
        ({**JOBS["tempering"], "tune_rounds": 2}, "tune_rounds is 2; .*several P it must be 0"),
    ],
)
def test_jobs_that_do_not_fit_data_are_refused(changes, sentence):
    protocol = changes if "kind" in changes else {**JOBS["fixed"], **changes}
    given = table(protocol)
    given["protocol"] = {"action": "exact", **protocol}
    with pytest.raises(mcattn.errors.JobError, match=sentence):
        tiny.of_table(given)


def test_too_few_sequences_and_too_many_counts_are_refused(tmp_path):
    np.save(tmp_path / "few.npy", np.zeros((6, 2), dtype=int))
    given = table(JOBS["fixed"], sets=1)
    given["data"] = {"file": str(tmp_path / "few.npy")}
    job, text = tiny.of_table(given)
    with pytest.raises(mcattn.errors.JobError, match="holds 6 sequences; 7 are needed"):
        run.start(job, text, tmp_path / "run.h5", Serial(), run.Watch())
    given = table({**JOBS["fixed"], "P": [1, 2, 3, 4]}, sets=2)
    given["model"] |= {"L": 256, "V": 64, "tokens": [1 / 64] * 64}
    job, text = tiny.of_table(given)
    with pytest.raises(mcattn.errors.JobError, match=r"at 4 P need 4.31 GB; a job may use 4"):
        run.start(job, text, tmp_path / "run.h5", Serial(), run.Watch())
    assert not (tmp_path / "run.h5").exists()
