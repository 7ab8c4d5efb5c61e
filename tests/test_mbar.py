"""Pooled samples: free energies and errors against systems where all is known."""

import warnings

import exact
import numpy as np
import pytest
from pymbar import MBAR
from synthetic_runs import known_run
from test_exchange import TWO, tempered
from toys import Harmonic, Toy, harmonic

from mcattn.analysis import mbar, profile, resample
from mcattn.errors import RunFileError, SamplingError, TooFewSamplesError
from mcattn.model import CopyModel

CENTER, STRENGTH = (0.0, 1.0, 2.0, 2.5), (1.0, 4.0, 4.0, 0.5)


def by_hand(X, state, sampler, model, factor=1.0):
    """The pool of a run in this process, with P multiplied by a factor in the potentials."""
    K, s = len(sampler.states), sampler.states
    row, column = np.indices(state.shape)
    table = mbar.States(s.P * factor, s.chi, s.bias_center, s.bias_strength)
    return mbar.solve(
        model, table, X.reshape(-1, 5), state.ravel(), row.ravel(), (column // K).ravel()
    )


# ---------------------------------------------------------------- free energies


def test_harmonic_states_have_their_free_energies():
    """Five seeds, three differences each: |z| < 4; the errors are neither too small nor too large.

    chi-square of 15 z, of which those of one seed are correlated: within 3 to 45.
    """
    z = []
    for seed in range(5):
        arguments, f = harmonic(np.random.default_rng(seed), CENTER, STRENGTH, rows=400)
        pool = mbar.solve(*arguments)
        draws = resample.draw(pool, resample.of_ends(pool))
        found = draws.free_energies()
        z += [(e.value - x) / e.error for e, x in zip(found[1:], f[1:], strict=True)]
    assert np.abs(z).max() < 4
    assert 3 < np.square(z).sum() < 45


def test_all_samples_agree_with_pymbar_alone():
    arguments, _ = harmonic(np.random.default_rng(1), CENTER, STRENGTH, rows=800, columns=8)
    pool = mbar.solve(*arguments)
    assert len(pool.X) > mbar.FIRST  # pymbar saw but some of them
    u, counts = pool.states.potentials(pool.X, pool.model), pool.counts
    order = np.argsort(pool.state, kind="stable")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pymbar hands scipy options that it does not know
        reference = MBAR(u[:, order], counts, relative_tolerance=1e-10)
    assert pool.f == pytest.approx(reference.f_k, abs=1e-7)
    assert pool.overlap == pytest.approx(reference.compute_overlap()["matrix"], abs=1e-7)
    assert pool.shares.sum(axis=0) == pytest.approx(np.ones(len(pool.X)))


SYSTEMS = {
    "L = 2, along P": (TWO, {"P": [2, 6, 15, 40], "chi": 3}),
    "L = 2, along chi": (TWO, {"P": 8, "chi": [1, 2, 4, 8]}),
    "L = 2, windows": (
        TWO, {"P": 8, "chi": 4, "bias_center": [0.3, 0.5, 0.7, 0.9], "bias_strength": 30.0},
    ),
    "L = 3": (CopyModel(3, 2, "softmax", 1.0, 2.0, 0.5), {"P": [8, 12], "chi": 1.5}),
    "linear": (CopyModel(2, 2, "linear", 1.0, 1.0, 1.0), {"P": [3, 6, 9], "chi": [2, 3, 4]}),
}  # fmt: skip


def ln_z_deviations(name, factor=1.0):
    """z of every difference of ln Z of a sampled ladder, against the quadrature."""
    model, settings = SYSTEMS[name]
    X, state, sampler = tempered(model, sweeps=2000, ladders=8, **settings)
    pool = by_hand(X, state, sampler, model, factor)
    draws = resample.draw(pool, resample.of_ends(pool))
    s = sampler.states
    ln_z = [
        exact.averages(model, *(float(x[k]) for x in (s.P, s.chi, s.bias_center, s.bias_strength)))[
            "ln_z"
        ]
        for k in range(len(s))
    ]
    found = zip(draws.free_energies()[1:], ln_z[1:], strict=True)
    return pool, draws, ln_z, np.array([(e.value + x - ln_z[0]) / e.error for e, x in found])


# The quadrature of nine scores takes its time.
SLOW = [pytest.param(name, marks=[pytest.mark.long] * (name == "L = 3")) for name in SYSTEMS]


@pytest.mark.parametrize("name", SLOW)
def test_sampled_ladders_have_the_free_energies_of_quadrature(name):
    """At most three numbers at a fixed seed: |z| < 3.5."""
    assert np.abs(ln_z_deviations(name)[3]).max() < 3.5


def test_a_wrong_coupling_in_the_potential_is_seen():
    """Control: P too large by 3 % in the reduced potentials."""
    assert np.abs(ln_z_deviations("L = 2, along P", factor=1.03)[3]).max() > 5


def test_a_state_that_was_not_sampled_by_reweighting():
    """From windows to no bias, and to another P: within 4 errors of the quadrature."""
    pool, draws, ln_z, _ = ln_z_deviations("L = 2, windows")
    error = draws.free_energies()[-1].error
    for P in (8, 7.5):
        exact_f = ln_z[0] - exact.averages(TWO, P, 4)["ln_z"]
        assert pool.free_energy(P, 4) == pytest.approx(exact_f, abs=4 * error + 0.02)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("a", [0.0, 0.8])
def test_blocks_see_the_autocorrelation(a):
    """Bootstrap errors against the scatter of 30 sets: the ratio of squares within 0.5 to 2.

    The scatter of 30 is known to 26 % in its square, an error from 40 blocks to 22 %: four
    standard deviations. Independent blocks of single rows (the control) are off by (1+a)/(1-a).
    """
    values, errors, naive = [], [], []
    for seed in range(30):
        arguments, _ = harmonic(np.random.default_rng(seed), (0, 1), (1, 2), 500, 4, a)
        pool = mbar.solve(*arguments)
        ends = resample.of_ends(pool)
        draws = resample.draw(pool, ends, draws=100)
        last = draws.free_energies()[-1]
        values.append(last.value)
        errors.append(last.error)
        naive.append(np.sqrt((ends**2).sum()))
    ratio = np.mean(np.square(errors)) / np.var(values, ddof=1)
    assert 0.5 < ratio < 2
    if a:
        assert last.tau == pytest.approx(9, rel=0.5)
        assert np.mean(np.square(naive)) / np.var(values, ddof=1) < 0.3


def test_the_bootstrap_agrees_with_the_influence_of_the_samples():
    """Uncorrelated data: the linear estimate and the bootstrap of 40 blocks, within 40 %."""
    arguments, _ = harmonic(np.random.default_rng(3), CENTER, STRENGTH, rows=1000)
    pool = mbar.solve(*arguments)
    ends = resample.of_ends(pool)
    linear = np.sqrt((ends**2).sum())
    assert ends.sum() == pytest.approx(0, abs=1e-6)
    assert resample.draw(pool, ends).free_energies()[-1].error == pytest.approx(linear, rel=0.4)


def test_drawn_free_energies_are_those_of_copied_samples():
    """Counts of blocks do what copies of the samples would do."""
    arguments, _ = harmonic(np.random.default_rng(4), CENTER, STRENGTH, rows=200)
    pool = mbar.solve(*arguments)
    draws = resample.draw(pool, resample.of_ends(pool), draws=2)
    copies = np.repeat(np.arange(len(pool.X)), draws.counts[0][draws.blocks].astype(int))
    copied = mbar.solve(
        pool.model, pool.states, *(x[copies] for x in (pool.X, pool.state, pool.row, pool.column))
    )
    assert pool.f + draws.change[:, 0] == pytest.approx(copied.f, abs=1e-5)


@pytest.mark.parametrize(
    ("sets", "limits"), [(40, (0.45, 0.9)), pytest.param(400, (0.6, 0.76), marks=pytest.mark.long)]
)
def test_the_interval_covers_the_truth_in_68_percent(sets, limits):
    """Correlated data, few rows. Limits: 3 standard deviations of the share for 40 sets."""
    hits = []
    for seed in range(sets):
        rng = np.random.default_rng(1000 + seed)
        arguments, f = harmonic(rng, (0, 1, 2), (1, 2, 3), 150, 2, 0.5)
        pool = mbar.solve(*arguments)
        last = resample.draw(pool, resample.of_ends(pool), draws=100).free_energies()[-1]
        hits.append(abs(last.value - f[-1]) < last.error)
    assert limits[0] <= np.mean(hits) <= limits[1]


# ---------------------------------------------------------------- refusals


def test_states_without_overlap_are_named():
    arguments, _ = harmonic(np.random.default_rng(1), (0, 1, 30, 31), (1, 1, 1, 1), 200)
    with pytest.raises(SamplingError, match=r"window at m = 1\) and state 2 .* do not overlap"):
        mbar.solve(*arguments)


def test_the_weakest_link_is_found():
    """States out of order: the link between the two groups, not the far pairs."""
    arguments, _ = harmonic(np.random.default_rng(1), (0, 6, 1, 3.8, 4.9), np.ones(5), 400)
    low, high, value = mbar.weakest(mbar.solve(*arguments).overlap)
    assert {low, high} == {2, 3}
    assert 0.01 < value < 0.15
    assert Harmonic(*np.ones((4, 2))).name(1) == "state 1 (P = 1, chi = 1, window at m = 1)"


def test_a_hysteresis_run_has_no_free_energies():
    with pytest.raises(RunFileError, match="is a hysteresis run; free energies need states in"):
        mbar.pool(known_run()[0])


def test_too_few_rows_are_refused():
    run = Toy().run(1, rows=8, complete=False, planned_sweeps=1000)
    with pytest.raises(TooFewSamplesError, match=r"8 rows \(80 of 1000 sweeps\); .* at least 20"):
        mbar.pool(run)


def test_rows_are_thinned_to_what_memory_holds(monkeypatch):
    run = Toy().run(1, rows=100)
    monkeypatch.setattr(mbar, "BYTES", 8.0 * run.replicas * 100 * len(run.states["P"]) / 3)
    pool = mbar.pool(run)
    assert pool.stride == 3
    assert len(pool.X) == 33 * run.replicas
    assert pool.shares.nbytes <= mbar.BYTES


def test_beyond_reach_is_refused():
    run = Toy().run(1)
    pool = mbar.pool(run)
    draws = resample.draw(pool, resample.of_ends(pool))
    with pytest.raises(TooFewSamplesError, match="P = 900, chi = 5 is beyond the reach"):
        profile.at(pool, draws, 900, 5)
