"""Compiled inner loops: arrays and scalars in, arrays filled in place.

Nothing here knows of files, MPI, classes or settings, and nothing here imports the rest of
mcattn. Every array is flat or (row, lane); the last axis always runs over replicas, which move
in lockstep through SIMD lanes.
"""

if __name__ != "mcattn.kernels":
    raise ImportError(f"import mcattn.kernels, not {__name__}: a second copy would compile twice")
