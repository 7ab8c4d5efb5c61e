"""Compiled inner loops: arrays and scalars in, arrays filled in place.

Nothing here knows of files, MPI, classes or settings, and nothing here imports the rest of
mcattn. Where replicas move in lockstep through SIMD lanes, every array is flat or (row, lane) and
the last axis runs over replicas; networks and patterns on data are advanced one by one.
"""

if __name__ != "mcattn.kernels":
    raise ImportError(f"import mcattn.kernels, not {__name__}: a second copy would compile twice")
