"""One BLAS thread per process: the tests run in two processes and start others."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
