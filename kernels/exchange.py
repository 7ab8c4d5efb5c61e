"""Replica exchange: which of the proposed pairs of neighbouring states swap their replicas.

A pure function of arrays, so that every rank that calls it with the same numbers takes the same
decisions; nothing but states is exchanged. The log weights come from `weight.any_tokens`, which
holds for changes of any size when it is told to use the full logarithm.
Axes: r replica, l ladder, p pair of neighbours, k state; lane = pairs proposed, padded.
"""

import math

from mcattn.kernels.jit import jit
from mcattn.kernels.weight import COUPLINGS, PRIOR, any_tokens

FULL_LOGARITHM = 0
WORK = 2 * 4 + COUPLINGS + 1


@jit
def swap(
    X, state, group, pairs, bounds, luck, coupling, p, n, V, holder, work,
    attempted, accepted, chance,
):  # fmt: skip
    """Decide one group of pairs in every ladder; the number of pairs that swapped.

    A pair swaps with probability min(1, e^R), R the sum of the changes of log weight when both
    states receive the other's pattern.

    Parameters
    ----------
    X : the five sums of every replica, shape (r, 5).
    state : state of every replica, shape (r,); changed. Replicas come ladder after ladder.
    group : which group to propose in every ladder, shape (l,).
    pairs, bounds : pairs (low, high), shape (2, p); group g has columns bounds[g] to
        bounds[g + 1] - 1, in which no state appears twice.
    luck : uniform numbers in [0, 1), shape (l, 1 + largest group); column 0 is not used.
    coupling : as in `weight`, a column for each state, shape (COUPLINGS, k).
    holder, work : scratch, shapes (l, k) and (WORK, lane).
    attempted, accepted, chance : swaps tried and done, sum of their probabilities; shape (l, p).
    """
    ladders, states = holder.shape
    for r in range(state.shape[0]):
        holder[r // states, state[r]] = r
    change = _log_ratios(X, holder, group, pairs, bounds, coupling, p, n, V, work)
    moved = 0
    lane = 0
    for ladder in range(ladders):
        first = bounds[group[ladder]]
        for pair in range(first, bounds[group[ladder] + 1]):
            probability = math.exp(min(change[lane], 0.0))
            attempted[ladder, pair] += 1
            chance[ladder, pair] += probability
            if luck[ladder, 1 + pair - first] < probability:
                low, high = pairs[0, pair], pairs[1, pair]
                state[holder[ladder, low]], state[holder[ladder, high]] = high, low
                accepted[ladder, pair] += 1
                moved += 1
            lane += 1
    return moved


@jit
def _log_ratios(X, holder, group, pairs, bounds, coupling, p, n, V, work):
    """ln of the ratio of weights after and before each swap, shape (lane,)."""
    change = work[-1]
    change[:] = 0.0
    for here in range(2):  # the lower states, then the upper ones
        lane = 0
        for ladder in range(holder.shape[0]):
            for pair in range(bounds[group[ladder]], bounds[group[ladder] + 1]):
                k = pairs[here, pair]
                mine, its = holder[ladder, k], holder[ladder, pairs[1 - here, pair]]
                _fill(work, lane, X[mine], X[its], coupling[:, k])
                change[lane] += coupling[PRIOR, k] * (X[mine, 4] - X[its, 4])
                lane += 1
        for spare in range(lane, change.shape[0]):
            work[:-1, spare] = work[:-1, 0]
        any_tokens(
            work[8 : 8 + COUPLINGS], work[0:4], work[4:8], change, V, FULL_LOGARITHM, p, n
        )  # fmt: skip
    return change


@jit
def _fill(work, lane, before, after, coupling):
    """Sums before and after, and couplings, of one lane."""
    for j in range(4):
        work[j, lane] = before[j]
        work[4 + j, lane] = after[j]
    for j in range(COUPLINGS):
        work[8 + j, lane] = coupling[j]
