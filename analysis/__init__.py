"""The room that reads run files: series become averages, runs results, results figures.

It imports neither the kernels nor MPI, so that it works wherever a run file can be copied to.
"""

if __name__ != "mcattn.analysis":
    raise ImportError(f"import this package as mcattn.analysis, not as {__name__!r}")
