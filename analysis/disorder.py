"""The error of an average over data sets, split into sampling and disorder.

Axes: t rows, r replicas, s data sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcattn.analysis.series import NAN


@dataclass(frozen=True)
class Split:
    """An average over data sets, and where its error comes from.

    error : of the average, for further data sets of the same kind: the scatter of the sets.
    sampling : part of the error that longer runs take away, at these sets.
    disorder : standard deviation between data sets, sampling taken out; 0 if it is not seen.
    nan where there are too few sets or replicas to tell.
    """

    name: str
    P: float
    chi: float
    sets: int
    value: float
    error: float
    sampling: float
    disorder: float


def split(name: str, P: float, chi: float, x: np.ndarray, set_of: np.ndarray) -> Split:
    """Split the error of x, shape (t, r), with equally many independent replicas of every set.

    The scatter of the sets' means is disorder and sampling together; that of replicas within
    their sets is sampling alone (analysis of variance with random effects).

    Parameters
    ----------
    set_of : data set of every replica, shape (r,).
    """
    labels = np.unique(set_of)
    own = np.stack([x.mean(axis=0)[set_of == s] for s in labels])
    sets, replicas = own.shape
    means = own.mean(axis=1)
    within = own.var(axis=1, ddof=1).mean() / replicas if replicas > 1 else NAN
    between = means.var(ddof=1) if sets > 1 else NAN
    return Split(
        name=name,
        P=P,
        chi=chi,
        sets=sets,
        value=float(means.mean()),
        error=float(np.sqrt(between / sets)),
        sampling=float(np.sqrt(within / sets)),
        disorder=float(np.sqrt(np.maximum(between - within, 0.0))),
    )
