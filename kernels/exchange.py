"""Replica exchange: which of the proposed pairs of neighbouring states swap their replicas.

A pure function of arrays, so that every rank that calls it with the same numbers takes the same
decisions; nothing but states is exchanged. The log weights come from `weight.any_tokens`, which
holds for changes of any size when it is told to use the full logarithm.
Axes: r replica, l ladder, p pair proposed, k state; lane = pairs of all ladders, padded.
"""

import math

from mcattn.kernels.jit import jit
from mcattn.kernels.weight import COUPLINGS, PRIOR, any_tokens

FULL_LOGARITHM = 0
WORK = 2 * 4 + COUPLINGS + 1


@jit
def swap(X, state, holder, low, high, luck, coupling, p, n, V, work, chance, swapped):
    """Decide the pairs (low, high) of every ladder, and move the replicas that swap.

    The replica pair swaps with probability min(1, e^R), R the sum of the changes of log weight
    when both states receive the other's pattern.

    Parameters
    ----------
    X : the five sums of every replica, shape (r, 5).
    state : state of every replica, shape (r,); changed.
    holder : replica in every state before, shape (l, k).
    low, high : states proposed to swap, shape (p,); no state may appear twice.
    luck : uniform numbers in [0, 1), shape (l, p).
    coupling : as in `weight`, a column for each state, shape (COUPLINGS, k).
    work : scratch, shape (WORK, lane).
    chance, swapped : acceptance probability and decision, shape (l, p); written.
    """
    change = _log_ratios(X, holder, low, high, coupling, p, n, V, work)
    ladders, pairs = luck.shape
    for ladder in range(ladders):
        for i in range(pairs):
            ratio = change[ladder * pairs + i]
            probability = 1.0 if ratio >= 0 else math.exp(ratio)
            chance[ladder, i] = probability
            swapped[ladder, i] = luck[ladder, i] < probability
            if swapped[ladder, i]:
                state[holder[ladder, low[i]]] = high[i]
                state[holder[ladder, high[i]]] = low[i]


@jit
def _log_ratios(X, holder, low, high, coupling, p, n, V, work):
    """ln of the ratio of weights after and before each swap, shape (lane,)."""
    sums, new, couplings, change = work[0:4], work[4:8], work[8 : 8 + COUPLINGS], work[-1]
    pairs = low.shape[0]
    change[:] = 0.0
    for end in range(2):  # the lower state, then the upper one
        for lane in range(change.shape[0]):
            # Lanes beyond the last pair repeat the first.
            i = lane if lane < holder.shape[0] * pairs else 0
            here, there = low[i % pairs], high[i % pairs]
            if end == 1:
                here, there = there, here
            mine, its = holder[i // pairs, here], holder[i // pairs, there]
            for j in range(4):
                sums[j, lane] = X[mine, j]
                new[j, lane] = X[its, j]
            for j in range(COUPLINGS):
                couplings[j, lane] = coupling[j, here]
            change[lane] += coupling[PRIOR, here] * (X[mine, 4] - X[its, 4])
        any_tokens(couplings, sums, new, change, V, FULL_LOGARITHM, p, n)
    return change
