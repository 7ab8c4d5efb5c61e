"""How the cost of each step grows: with L, replicas, states, windows and ranks; memory.

Usage: python benchmarks/scale.py [sweeps|exchanges|windows|memory ...]
       mpiexec -n RANKS python benchmarks/scale.py ranks

Shortest of several repeats: the machine is busy, and the shortest is what the step needs. The
column "order" is the exponent of the growth between two rows.
"""

import math
import sys
import time

import numpy as np

from mcattn import jobtext, windows
from mcattn.exchange import Exchanger
from mcattn.ladder import Ladder
from mcattn.model import CopyModel
from mcattn.ranks import connect, share
from mcattn.records import Exchanged
from mcattn.replicas import LANES, Replicas, couplings
from mcattn.sampler import BLOCK, Sampler

P, CHI = 310.0, 10.0


def best(work, seconds=1.0, most=200):
    """Shortest time of some work, tried for so many seconds."""
    times, until = [], time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < until and len(times) < most):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def table(title, names, rows):
    """Print rows (size, seconds, ...) with the order of growth of the second column."""
    print(f"\n{title}\n" + "".join(f"{name:>14s}" for name in (*names, "order")))
    before = None
    for row in rows:
        order = math.log(row[1] / before[1]) / math.log(row[0] / before[0]) if before else math.nan
        print("".join(f"{x:14.5g}" for x in (*row, order)), flush=True)
        before = row


def swept(L, count, first=0):
    """Replicas ready to be swept."""
    model = CopyModel(L=L)
    replicas = Replicas(model, 1, first, count)
    replicas.start("uniform", CHI)
    replicas.set_states(P, CHI, 0.0, 0.0, 2.5 * math.sqrt(model.g_s / CHI))
    replicas.advance(1)
    return replicas


def sweep_time(L, count):
    """Microseconds of a sweep, and nanoseconds of an update of one replica."""
    replicas = swept(L, count)
    seconds = best(lambda: replicas.advance(2)) / 2
    return 1e6 * seconds, 1e9 * seconds / replicas.updates_per_sweep / count


def sweeps():
    rows = ((L, *sweep_time(L, 64)) for L in (16, 32, 64, 128, 256))
    table("sweep of 64 replicas against L", ("L", "us", "ns/update"), rows)
    rows = ((R, *sweep_time(16, R)) for R in (8, 16, 64, 256, 1024, 4096))
    table("sweep at L = 16 against replicas", ("replicas", "us", "ns/update"), rows)


def ladder(states, ladders):
    """A ladder in P at one chi, with everything that an exchange needs."""
    x = np.linspace(0, 1, states)
    zero = np.zeros(states)
    made = Ladder(P + x, CHI + zero, zero, zero, (states,), ladders, 1, "even-odd", 0)
    model = CopyModel()
    now = Exchanged.nothing(made.replicas(), states, made)
    coupling = couplings(model, **made.controls(made.start()), step=x + 1)
    return Exchanger(made, model, 1), now, coupling


def exchange_time(states, ladders):
    """Microseconds of the decisions on one exchange, and nanoseconds of them per replica."""
    exchanger, now, coupling = ladder(states, ladders)
    X = np.abs(np.random.default_rng(1).normal(0.2, 0.01, (states * ladders, 5)))
    exchanger.exchange(X, coupling, now)
    seconds = best(lambda: exchanger.exchange(X, coupling, now))
    return 1e6 * seconds, 1e9 * seconds / (states * ladders)


def exchanges():
    sizes = (8, 32, 128, 512, 2048)
    rows = ((k, *exchange_time(k, 2)) for k in sizes)
    table("decisions of 2 ladders against states", ("states", "us", "ns/replica"), rows)
    rows = ((n, *exchange_time(8, n)) for n in sizes)
    table("decisions of 8 states against ladders", ("ladders", "us", "ns/replica"), rows)


def interval_time(count):
    """Microseconds of five sweeps and an exchange of an umbrella run, and of its five sweeps."""
    job = jobtext.parse(
        {
            "model": CopyModel().to_dict(),
            "protocol": {
                "kind": "umbrella", "chi": CHI, "P": 337.6, "windows": count, "ladders": 1,
                "tune_rounds": 0, "thermalize": 0, "sweeps": 100_000,
            },
        },
        "scale",
    )  # fmt: skip
    sampler = Sampler(job.plan(), job.model, 1, connect()[0], 0, count, None)
    sampler.advance()
    whole = best(sampler.advance)
    return 1e6 * whole, 1e6 * best(lambda: sampler.replicas.advance(5))


def run_windows():
    rows = ((n, *interval_time(n)) for n in (16, 32, 64, 128, 256, 512, 1024))
    table("an exchange interval of windows", ("windows", "us", "us of sweeps"), rows)
    print("\nwindows that theory asks for at chi = 10, and seconds to place them")
    for L in (16, 24, 32, 48):
        began = time.perf_counter()
        placed = windows.place(CopyModel(L=L), CHI, None, None, None)
        print(f"{L:14d}{placed.count:14d}{time.perf_counter() - began:14.2f}")


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return 4096 * int(file.read().split()[1])


def memory():
    print(
        "\nbytes for each replica: of its arrays, resident (scratch of the start included), 16 L^2"
    )
    for L, count in ((16, 8192), (64, 512), (256, 64)):
        before = resident()
        replicas = swept(L, count)
        arrays = sum(x.nbytes for x in vars(replicas).values() if isinstance(x, np.ndarray))
        shown = (L, arrays / count, (resident() - before) / count, 16 * L * L)
        print("".join(f"{x:14.0f}" for x in shown))
        del replicas


def slowest(ranks, work, repeats):
    """Shortest time of a step that all ranks begin together and the slowest ends, in us."""
    times = []
    for _ in range(repeats):
        ranks.sum(np.zeros(1, dtype=int))
        began = time.perf_counter()
        work()
        times.append(ranks.max(np.array([time.perf_counter() - began]))[0])
    return 1e6 * min(times)


def ranked(total):
    """Of so many replicas on all ranks: us of a sweep, of a gather, and of a whole exchange."""
    ranks = connect()[0]
    first, count = share(total, LANES, ranks.rank, ranks.size)
    replicas = swept(16, count, first)
    exchanger, now, coupling = ladder(total // 2, 2)
    mine = replicas.sums()

    def step():
        exchanger.exchange(ranks.gather_everywhere(mine), coupling, now)

    sweep = slowest(ranks, lambda: replicas.advance(BLOCK), 20) / BLOCK
    gather = slowest(ranks, lambda: ranks.gather_everywhere(mine), 2000)
    return sweep, gather, slowest(ranks, step, 500)


def over_ranks():
    """Blocks of sweeps and exchanges on all ranks; a + b R fitted to the exchanges."""
    ranks = connect()[0]
    rows = [(R, *ranked(R)) for R in (64, 128, 256, 512, 1024, 2048, 4096)]
    if ranks.rank == 0:
        names = ("replicas", "us/sweep", "us gather", "us exchange")
        table(f"{ranks.size} ranks, L = 16", names, rows)
        R, _, _, exchange = np.array(rows).T
        b, a = np.polyfit(R, exchange, 1, w=1 / exchange)
        print(f"\nexchange = {a:.1f} us + {1000 * b:.0f} ns R")


def main():
    rooms = {
        "sweeps": sweeps, "exchanges": exchanges, "windows": run_windows, "memory": memory,
        "ranks": over_ranks,
    }  # fmt: skip
    for name in sys.argv[1:] or list(rooms)[:-1]:
        rooms[name]()


if __name__ == "__main__":
    main()
