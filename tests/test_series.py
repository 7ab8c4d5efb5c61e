"""Averages and their errors against series whose mean, variance and tau are known."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pulls
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from synthetic_runs import ar1

from mcattn.analysis import series
from mcattn.errors import SamplingError, TooFewSamplesError


@pytest.mark.parametrize(
    ("a", "rows", "replicas"), [(0, 4000, 1), (0.8, 20000, 1), (0.9, 2000, 16)]
)
def test_tau_of_ar1(a, rows, replicas):
    truth = (1 + a) / (1 - a)
    tau = series.autocorrelation_time(ar1(a, rows, replicas, np.random.default_rng(7)))
    # Variance of a windowed tau: Madras and Sokal; the window is at most ~6 tau wide.
    assert abs(tau / truth - 1) < 4 * math.sqrt(2 * (12 * truth + 1) / (rows * replicas))


def test_tau_below_one_for_alternating_series():
    tau = series.autocorrelation_time(ar1(-0.5, 20000, 2, np.random.default_rng(8)))
    assert tau == pytest.approx(1 / 3, abs=0.05)


ENSEMBLES = 320


def covered(a: float, rows: int, replicas: int, error) -> float:
    """Share of 320 ensembles whose interval holds the true mean, 0."""
    rng = np.random.default_rng([rows, replicas])
    hits = 0
    for _ in range(ENSEMBLES):
        x = ar1(a, rows, replicas, rng)
        hits += abs(x.mean()) <= error(x)
    return hits / ENSEMBLES


def within_binomial_noise(share: float) -> bool:
    low, high = stats.binom.interval(0.9999, ENSEMBLES, 0.6827)
    return bool(low <= ENSEMBLES * share <= high)


SHAPES = [(0.0, 200, 1), (0.9, 2000, 1), (0.8, 800, 4), (0.9, 300, 8), (0.95, 100, 24), (0.5, 1, 8)]


@pytest.mark.parametrize(("a", "rows", "replicas"), SHAPES)
def test_interval_covers_the_mean(a, rows, replicas):
    assert within_binomial_noise(covered(a, rows, replicas, lambda x: series.mean(x).error))


@pytest.mark.parametrize(
    ("a", "rows", "replicas"), [(0.7, 300, 16), (0.7, 800, 4), (0.2, 2000, 1), (0.8, 3000, 1)]
)
def test_interval_covers_tau(a, rows, replicas):
    """Control: errors of two thirds are outside of the noise of 320 ensembles."""
    rng = np.random.default_rng([rows, replicas])
    found = [series.autocorrelation(ar1(a, rows, replicas, rng)) for _ in range(ENSEMBLES)]
    z = pulls.of(found, (1 + a) / (1 - a))
    assert within_binomial_noise(pulls.coverage(z))
    assert not within_binomial_noise(pulls.coverage(1.5 * z))


def naive(x):
    return x.std() / math.sqrt(x.size)


@pytest.mark.parametrize(("a", "rows", "replicas"), [(0.5, 500, 1), (0.9, 300, 8)])
def test_error_without_tau_does_not_cover(a, rows, replicas):
    assert not within_binomial_noise(covered(a, rows, replicas, naive))


def test_error_without_student_factor_is_seen_with_few_replicas():
    """The control for `independent`: 3 values, where Student's factor is 1.32."""
    rng = np.random.default_rng(5)
    values = rng.standard_normal((ENSEMBLES, 3))
    plain = np.mean(np.abs(values.mean(1)) <= values.std(1, ddof=1) / math.sqrt(3))
    ours = np.mean([abs(v.mean()) <= series.independent(v).error for v in values])
    assert within_binomial_noise(ours)
    assert not within_binomial_noise(plain)


def test_scatter_of_replicas_is_exact_out_of_equilibrium():
    """A ramp shared by all replicas adds nothing to the error of their mean."""
    rng = np.random.default_rng(3)
    ramp = np.linspace(-5, 5, 50)[:, None]
    ratio = [
        series.mean(x + ramp).error / series.mean(x).error
        for x in (ar1(0.5, 50, 12, rng) for _ in range(20))
    ]
    np.testing.assert_allclose(ratio, 1, rtol=1e-9)


def frozen_series() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    constant = np.full((200, 1), 0.25)
    early, late, last = constant.copy(), constant.copy(), constant.copy()
    early[3:], late[150:], last[-1] = 1, 1, 1
    moving = ar1(0.5, 200, 9, rng)
    one_constant = moving.copy()
    one_constant[:, 4] = 0.1
    return {
        "constant": constant,
        "jump early": early,
        "jump late": late,
        "jump in the last row": last,
        "noise of 1e-30": 1e-30 * moving[:, :1],
        "rounding noise": 1 + 1e-16 * moving[:, :1],
        "each replica elsewhere": np.tile(np.arange(9.0), (200, 1)),
        "one constant replica": one_constant,
        "two equal rows": np.ones((2, 12)),
    }


@pytest.mark.parametrize("name", frozen_series())
def test_stuck_series(name):
    x = frozen_series()[name]
    estimate = series.mean(x)
    assert estimate.flag == series.STUCK
    assert estimate.n == 0
    assert math.isnan(estimate.error)
    assert math.isnan(estimate.tau)
    assert estimate.value == pytest.approx(x.mean())
    assert math.isnan(series.autocorrelation_time(x))
    time = series.autocorrelation(x)
    assert (time.flag, time.n) == (series.STUCK, 0)
    assert math.isnan(time.value)
    assert math.isnan(time.error)


def test_constant_by_construction_is_not_stuck():
    one = series.exactly(1.0)
    assert (one.value, one.error, one.flag) == (1.0, 0.0, series.CONSTANT)


@pytest.mark.parametrize("replicas", [3, 8, 16])
def test_replicas_in_different_modes(replicas):
    """tau is long, n is about the number of replicas, and the flag says why."""
    x = ar1(0.5, 400, replicas, np.random.default_rng(2)) + 4 * (np.arange(replicas) % 2)
    estimate = series.mean(x)
    assert estimate.flag == series.DISAGREE
    assert estimate.tau > 100
    assert estimate.n < 3 * replicas


def test_copies_are_worth_one_replica():
    one = ar1(0.5, 2000, 1, np.random.default_rng(4))
    alone, copied = series.mean(one), series.mean(np.tile(one, 10))
    assert copied.flag == series.ALIKE
    assert copied.error == pytest.approx(alone.error, rel=0.1)


def test_honest_replicas_are_rarely_flagged():
    """A false alarm is due once in 10^4; 5 in 400 would be chance with 1e-6."""
    rng = np.random.default_rng(9)
    flags = [series.mean(ar1(0.5, 200, 8, rng)).flag for _ in range(400)]
    assert sum(flag is not None for flag in flags) < 5


@pytest.mark.parametrize("replicas", [1, 2, 6, 20])
def test_too_short_says_what_is_missing(replicas):
    rng = np.random.default_rng(replicas)
    tau = 39
    short = series.mean(ar1(0.95, 60, replicas, rng))
    assert short.flag == series.TOO_SHORT
    assert short.more > 0
    enough = series.mean(ar1(0.95, int(5 * tau * max(10, 50 / replicas)), replicas, rng))
    assert enough.flag is None
    assert enough.more == 0


def test_random_walk_never_looks_resolved():
    rng = np.random.default_rng(6)
    for _ in range(100):
        walk = np.cumsum(rng.standard_normal((400, 1)), axis=0)
        assert series.mean(walk).flag == series.TOO_SHORT


def test_one_row():
    alone = series.mean([[0.5]])
    assert (alone.value, alone.n, alone.flag) == (0.5, 1, series.TOO_SHORT)
    assert math.isnan(alone.error)
    assert series.autocorrelation([[0.5]]).flag == series.TOO_SHORT
    assert math.isnan(series.autocorrelation([[0.5]]).value)
    many = series.mean(np.arange(12.0)[None])
    assert many.error == pytest.approx(np.arange(12).std(ddof=1) / math.sqrt(12), rel=0.06)
    assert many.flag == series.TOO_SHORT


def test_nothing_to_average():
    with pytest.raises(TooFewSamplesError, match="0 rows of 3 replicas"):
        series.mean(np.empty((0, 3)))
    with pytest.raises(TooFewSamplesError, match="no values"):
        series.independent([])
    with pytest.raises(SamplingError, match="not finite"):
        series.mean([[1.0], [math.nan]])
    with pytest.raises(ValueError, match="two axes"):
        series.mean([1.0, 2.0])


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 60),
    replicas=st.integers(1, 12),
    a=st.floats(-0.9, 0.99),
)
@settings(max_examples=60, deadline=None)
def test_any_series(seed, rows, replicas, a):
    x = ar1(a, rows, replicas, np.random.default_rng(seed))
    estimate = series.mean(x)
    assert 0 <= estimate.n <= x.size
    assert not estimate.error < 0
    moved = series.mean(3 - 2 * x)
    assert moved.value == pytest.approx(3 - 2 * estimate.value)
    assert moved.error == pytest.approx(2 * estimate.error, rel=1e-6, nan_ok=True)
    assert moved.flag == estimate.flag
    shuffled = series.mean(x[:, ::-1])
    assert shuffled.error == pytest.approx(estimate.error, rel=1e-6, nan_ok=True)


def test_json_has_no_nan():
    assert series.plain(series.Estimate(1.0, math.nan, math.inf, 0.0)) == {
        "value": 1.0,
        "error": None,
        "tau": None,
        "n": 0.0,
        "flag": None,
        "more": 0,
    }


def test_the_room_refuses_another_name():
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r}); import analysis"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "import this package as mcattn.analysis" in done.stderr


def test_analysis_loads_neither_numba_nor_mpi():
    code = (
        "import sys, mcattn.analysis.report, mcattn.analysis.figures;"
        "unwanted = {'numba', 'mpi4py', 'mcattn.kernels', 'mcattn.sampler', 'matplotlib.pyplot'};"
        "print(sorted(unwanted & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
