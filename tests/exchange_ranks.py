"""Under mpiexec: many exchanges, each rank giving its own replicas' sums; see test_exchange."""

import sys

import numpy as np
from test_exchange import MODEL, begun, ladder_of, random_sums

from mcattn import ranks as rank_room

COUNT, LADDERS, STRETCH = 8, 3, 100


def main(rounds):
    ranks, _ = rank_room.connect()
    exchanger, now, table = begun(ladder_of((COUNT,), ladders=LADDERS))
    first, own = rank_room.share(COUNT * LADDERS, 6, ranks.rank, ranks.size)
    pool = random_sums(MODEL, 500, seed=1 + ranks.rank)
    rng = np.random.default_rng(ranks.rank)
    maps = np.empty((STRETCH, COUNT * LADDERS))
    for done in range(rounds):
        local = pool[rng.integers(len(pool), size=own)]  # no two ranks draw alike
        X = ranks.gather_everywhere(local)
        assert (X[first : first + own] == local).all()
        exchanger.exchange(X, table, now)
        by_ladder = np.sort(now.state.reshape(LADDERS, COUNT), axis=1)
        assert (by_ladder == np.arange(COUNT)).all(), f"no permutation in round {done}"
        maps[done % STRETCH] = now.state
        if done % STRETCH == STRETCH - 1:
            # One row for each own replica, as in every call of it.
            everyone = ranks.gather_everywhere(np.tile(maps.reshape(1, -1), (own, 1)))
            assert (everyone == everyone[0]).all(), f"ranks differ before round {done}"
    if ranks.rank == 0:
        print(f"{rounds} rounds on {ranks.size} ranks, {int(now.accepted.sum())} swaps")


if __name__ == "__main__":
    main(int(sys.argv[1]))
