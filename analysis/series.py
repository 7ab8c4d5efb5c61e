"""Averages of correlated series, and the package's one definition of the autocorrelation time.

    tau = 1 + 2 sum_{k >= 1} rho_k      in units of rows

so that N rows are worth N / tau independent ones; AR(1) with coefficient a has (1 + a)/(1 - a).
Axes: t rows in time, r replicas, k lag.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft, signal, special

from mcattn.errors import SamplingError, TooFewSamplesError

# From this many replicas on their scatter alone gives the error, to better than 30 %.
REPLICAS = 8
WINDOW = 5.0  # the lags summed reach at least this many tau (Sokal)
ROWS_PER_TAU, TOTAL_PER_TAU = 10.0, 50.0  # of one replica, of all: fewer do not resolve tau
CHANCE = 1e-4  # a disagreement rarer than this is reported; a run compares some hundreds
# Steps this small are rounding, not motion; no observable of the model is as small as FLOOR.
ROUNDING, FLOOR = 1e-13, 1e-20
BLOCK = 2**21  # values transformed at a time

STUCK = "stuck"
CONSTANT = "constant"
TOO_SHORT = "too short"
DISAGREE = "replicas disagree"
ALIKE = "replicas alike"
FEW = "few replicas"

NAN = float("nan")


@dataclass(frozen=True)
class Estimate:
    """A mean with its error.

    value : the mean.
    error : half-width of its 68 % interval, widened by Student's factor; nan if unknown.
    tau : autocorrelation time in rows; a lower bound if flagged "too short"; nan if unknown.
    n : effective number of samples, never above the number of values; 0 if stuck.
    flag : None, or what is wrong:
        "stuck" : a replica does not move, so that nothing is known about the error;
        "constant" : not measured, constant by construction;
        "too short" : tau is not resolved (with few replicas the error is too small as well);
        "replicas disagree" : their means scatter more than each one's fluctuations allow;
        "replicas alike" : less than these allow: a common drift, or copies of one another;
        "few replicas" : too few independent values for a trustworthy error.
    more : rows still needed in every replica, at least; 0 unless "too short".
    """

    value: float
    error: float
    tau: float
    n: float
    flag: str | None = None
    more: int = 0


def plain(value: Any) -> Any:
    """A record, or anything inside one, for JSON: which has no nan or infinity, so None."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def exactly(value: float) -> Estimate:
    """The estimate of what is constant by construction, as the row sums of softmax are.

    Only who knows the model can say so: to `mean` a series that never moves is stuck.
    """
    return Estimate(value, 0.0, NAN, 0.0, CONSTANT)


def short(value: float, error: float) -> str:
    """Value with the error in its last digits: one digit of it, two if it begins with 1.

    A value whose error is not known ends in (?); errors of 10 and more are in units of 1.
    """
    if not math.isfinite(value):
        return "-"
    if not math.isfinite(error):
        return f"{value:.4g}(?)"
    if error == 0:
        return f"{value:.6g}"
    leading, exponent = f"{error:.1e}".split("e")
    decimals = max(0, (1 if leading < "1.95" else 0) - int(exponent))
    return f"{value:z.{decimals}f}({round(error * 10**decimals)})"


def independent(values: ArrayLike) -> Estimate:
    """Mean of independent values, shape (r,), one for each replica.

    Raises
    ------
    TooFewSamplesError : there is no value.
    """
    values = np.asarray(values, dtype=float)
    count = values.size
    if count == 0:
        raise TooFewSamplesError("no values to average")
    flag = FEW if count < REPLICAS else None
    if count == 1:
        return Estimate(float(values[0]), NAN, NAN, 1.0, flag)
    error = student(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return Estimate(float(values.mean()), error, NAN, float(count), flag)


def mean(x: ArrayLike) -> Estimate:
    """Mean over rows and independent replicas of x, shape (t, r).

    With at least 8 replicas the error is the scatter of their means: exact for independent
    replicas, in equilibrium or not. With fewer it is the fluctuation within the chains times
    sqrt(tau). Where tau allows, the two are compared by an F test.

    Raises
    ------
    TooFewSamplesError : there is not one row or one replica.
    SamplingError : a value is not finite.
    """
    x = _checked(x)
    rows, replicas = x.shape
    value = float(x.mean())
    if rows == 1:
        start = independent(x[0])
        return Estimate(value, start.error, NAN, start.n, TOO_SHORT, _missing(1.0, x))
    if stuck(x).any():
        return Estimate(value, NAN, NAN, 0.0, STUCK)
    pooled = _correlation(x - value, x.size)
    flag, more = _compare(x), 0
    if flag is None:
        more = _missing(pooled.tau, x)
        flag = TOO_SHORT if more else None
    if flag == ALIKE:
        # One chain's worth: what they share, be it a drift or a stream, does not average out.
        square, freedom = _correlation(x - x.mean(axis=0), rows).long_run / rows, replicas - 1.0
    elif replicas >= REPLICAS:
        square, freedom = x.mean(axis=0).var(ddof=1) / replicas, replicas - 1.0
    else:
        square = max(pooled.long_run, pooled.variance) / x.size
        freedom = pooled.freedom
    n = min(float(x.size), pooled.variance / square) if square > 0 else float(x.size)
    return Estimate(value, student(freedom) * math.sqrt(square), pooled.tau, n, flag, more)


def autocorrelation_time(x: ArrayLike) -> float:
    """tau, in rows, of x, shape (t, r); nan when there is one row or a replica is stuck.

    The autocorrelation functions of the replicas are averaged, not their taus: a tau from one
    short chain is biased and its own window is noisy, the average of the functions is neither.
    They are taken about the mean of all replicas, so that replicas caught in different modes
    show as a long tau. The sum stops at the first lag of at least 5 tau (Sokal).
    """
    x = _checked(x)
    if x.shape[0] == 1 or stuck(x).any():
        return NAN
    return _correlation(x - x.mean(), x.size).tau


def autocorrelation(x: ArrayLike) -> Estimate:
    """tau of x, shape (t, r), as `autocorrelation_time` gives it, with its error.

    tau is a quotient of two averages over the rows, of d_t sum_{|k| <= W} d_{t+k} and of d_t^2,
    with deviations d and window W. So its error is that of the mean of what each row adds to it,
    d_t (sum_k d_{t+k} - tau d_t) / variance, and `mean` knows that one from few long replicas
    as well as from many short ones. Its `n` and `flag` are those of this mean.
    """
    x = _checked(x)
    if x.shape[0] == 1 or stuck(x).any():
        return replace(mean(x), value=NAN, error=NAN)
    d = x - x.mean()
    found, rows = _correlation(d, x.size), x.shape[0]
    lags = np.abs(np.arange(-found.window, found.window + 1))[:, None]
    near = signal.oaconvolve(d, rows / (rows - lags), mode="same", axes=0)
    return replace(mean(d * (near - found.tau * d) / found.variance), value=found.tau)


def stuck(x: np.ndarray) -> np.ndarray:
    """Which replicas of x, shape (t, r), do not move: no change, or hardly any; shape (r,).

    The rule counts changes larger than rounding: a jump or two in a constant series looks
    uncorrelated to every autocorrelation time.
    """
    smallest = ROUNDING * np.abs(x).max(axis=0) + FLOOR
    moves = (np.abs(np.diff(x, axis=0)) > smallest).sum(axis=0)
    return 2 * moves < min(10, x.shape[0] - 1)


class _Correlation(NamedTuple):
    """Variance, its sum over lags (the variance of a long mean times its length), tau, window."""

    variance: float
    long_run: float
    tau: float
    window: int  # lags summed
    freedom: float  # of `long_run`, as a chi-square variable


def _correlation(d: np.ndarray, averaged: int) -> _Correlation:
    """Windowed correlations of the deviations d, shape (t, r), from a mean of `averaged` rows.

    The mean's own error lowers every covariance by long_run / averaged, which is put back
    (Wolff, hep-lat/0306017, eq. 49).
    """
    rows, replicas = d.shape
    covariance = _covariance(d)
    sums = 1 + 2 * np.cumsum(covariance[1:]) / covariance[0]
    lags = np.arange(1, rows)
    closed = lags >= WINDOW * np.maximum(sums, 1)
    window = int(lags[np.argmax(closed)]) if closed.any() else rows - 1
    long_run = covariance[0] * sums[window - 1]
    shift = long_run / averaged
    variance = float(covariance[0] + shift)
    long_run = float(long_run + (2 * window + 1) * shift)
    freedom = max(1.0, rows * replicas / (2 * window + 1))
    return _Correlation(variance, long_run, max(long_run / variance, 0.0), window, freedom)


def _covariance(d: np.ndarray) -> np.ndarray:
    """Autocovariance at lag k, shape (t,), averaged over the replicas of d, shape (t, r)."""
    rows, replicas = d.shape
    size = fft.next_fast_len(2 * rows, real=True)
    power = np.zeros(size // 2 + 1)
    # The padded transforms of all replicas together may not fit in memory.
    for block in np.array_split(d, math.ceil(size * replicas / BLOCK), axis=1):
        power += (np.abs(fft.rfft(block, size, axis=0)) ** 2).sum(axis=1)
    return fft.irfft(power, size)[:rows] / (replicas * np.arange(rows, 0, -1))


def _compare(x: np.ndarray) -> str | None:
    """Flag if the replicas' means scatter otherwise than their own fluctuations allow."""
    rows, replicas = x.shape
    own = _correlation(x - x.mean(axis=0), rows)
    if replicas == 1 or rows < 2 * ROWS_PER_TAU * max(own.tau, 1):
        return None
    ratio = x.mean(axis=0).var(ddof=1) * rows / max(own.long_run, FLOOR)
    if special.fdtrc(replicas - 1, own.freedom, ratio) < CHANCE / 2:
        return DISAGREE
    return ALIKE if special.fdtr(replicas - 1, own.freedom, ratio) < CHANCE / 2 else None


def _missing(tau: float, x: np.ndarray) -> int:
    """Rows that every replica of x, shape (t, r), still lacks to resolve this tau."""
    rows, replicas = x.shape
    needed = max(ROWS_PER_TAU, TOTAL_PER_TAU / replicas) * max(tau, 1)
    return max(0, math.ceil(needed) - rows)


def student(freedom: float) -> float:
    """What turns a standard error with so many degrees of freedom into a 68 % half-width."""
    return float(special.stdtrit(freedom, special.ndtr(1.0)))


def _checked(x: ArrayLike) -> np.ndarray:
    x = np.asarray(x, dtype=float)
    if x.ndim != 2:
        raise ValueError(f"the series has shape {x.shape}; it needs two axes (row, replica)")
    if x.size == 0:
        raise TooFewSamplesError(f"the series has {x.shape[0]} rows of {x.shape[1]} replicas")
    if not np.isfinite(x).all():
        raise SamplingError("the series holds values that are not finite")
    return x
