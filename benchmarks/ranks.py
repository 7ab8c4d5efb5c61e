"""Time of a block of sweeps against the time of the exchanges between ranks.

Usage: mpiexec -n RANKS python benchmarks/ranks.py REPLICAS [L]

A block is 32 sweeps of this rank's replicas at P = 310, chi = 10. The exchanges: the Allreduce of
two numbers that follows every block, and an Allgather of five numbers for each replica, which is
what a swap pass of tempering needs. Minima over repeats: of two ranks on a busy machine the
fastest times are those in which both had a core.
"""

import sys
import time

import numpy as np
from mpi4py import MPI

from mcattn.model import CopyModel
from mcattn.ranks import share
from mcattn.replicas import LANES, Replicas
from mcattn.sampler import BLOCK

REPEATS, EXCHANGES = 400, 5000


def best(work, world, repeats):
    """Shortest time of some work; all ranks begin together, the slowest counts."""
    times = []
    for _ in range(repeats):
        world.Barrier()
        began = time.perf_counter()
        work()
        times.append(world.allreduce(time.perf_counter() - began, op=MPI.MAX))
    return min(times)


def main():
    world = MPI.COMM_WORLD
    total, L = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 16
    first, count = share(total, LANES, world.rank, world.size)
    model = CopyModel(L=L)
    replicas = Replicas(model, seed=1, first=first, count=count)
    replicas.start("uniform", 10.0)
    replicas.set_states(310.0, 10.0, 0.0, 0.0, 2.5 * np.sqrt(model.g_s / 10.0))
    replicas.advance(2)

    wishes, answer = np.zeros(2), np.zeros(2)
    rows, table = np.zeros((count, 5)), np.zeros((world.size, count, 5))
    block = best(lambda: replicas.advance(BLOCK), world, REPEATS)
    agree = best(lambda: world.Allreduce(wishes, answer, op=MPI.MAX), world, EXCHANGES)
    swap = best(lambda: world.Allgather(rows, table), world, EXCHANGES)
    if world.rank == 0:
        print(
            f"{world.size} ranks, R = {total}, L = {L}: block {1e3 * block:.2f} ms, "
            f"Allreduce {1e6 * agree:.1f} us, Allgather {1e6 * swap:.1f} us"
        )


if __name__ == "__main__":
    main()
