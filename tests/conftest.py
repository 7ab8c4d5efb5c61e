"""One BLAS thread per process, and the slowest files first.

The tests run in two processes, which share out files, and start others.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

SLOWEST = (
    "test_slurm",
    "test_exact_sampling",
    "test_kills",
    "test_coexistence",
    "test_store",
    "test_training",
    "test_exchange",
    "test_exchange_runs",
    "test_onset",
    "test_cli",
    "test_cache",
    "test_minima",
    "test_minimareport",
    "test_disorder",
    "test_mbar",
)


def pytest_collection_modifyitems(items):
    """A slow file that begins last would leave one process waiting for the other."""
    rank = {name: i for i, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
