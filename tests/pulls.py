"""Do errors mean what they say? Pulls of many estimates against a known truth."""

import numpy as np
from scipy import stats

from mcattn.analysis import series

SIGMA_SHARE = stats.norm.cdf(1) - stats.norm.cdf(-1)


def of(estimates, truth):
    """Pulls (value - truth) / error of estimates, nested lists of any shape."""
    values, errors = (_each(estimates, name) for name in ("value", "error"))
    return (values - truth) / errors


def coverage(z):
    """Share of the intervals value +- error that hold the truth."""
    return float((np.abs(z) < 1).mean())


def bias(estimates, truth):
    """Mean of value - truth over the first axis, in errors known from its own scatter."""
    off = _each(estimates, "value") - truth
    return off.mean(axis=0) / (off.std(axis=0, ddof=1) / np.sqrt(len(off)))


def honest(z, freedom):
    """Whether pulls have the coverage and the scatter of Student's t, to 4 standard errors.

    freedom : degrees of freedom of the errors, 5 or more. Half-widths of a 68 % interval are
        wider than a standard error, and pulls scatter by what is left: 1.05 for 12 values.
    """
    t = stats.t(freedom)
    expected = t.std() / series.student(freedom)
    kurtosis = 3 + t.stats("k")
    scatter = abs(z.std() / expected - 1) < 4 * np.sqrt((kurtosis - 1) / (4 * z.size))
    noise = np.sqrt(SIGMA_SHARE * (1 - SIGMA_SHARE) / z.size)
    return bool(scatter and abs(coverage(z) - SIGMA_SHARE) < 4 * noise)


def _each(estimates, name):
    if isinstance(estimates, series.Estimate):
        return getattr(estimates, name)
    return np.array([_each(item, name) for item in estimates])
