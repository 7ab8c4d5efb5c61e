"""The exceptions that mcattn raises, all with one sentence for the user."""


class McattnError(Exception):
    """Base of every error that is the user's to mend, not a fault of the program."""


class ModelError(McattnError, ValueError):
    """A model parameter is outside its range."""


class JobError(McattnError, ValueError):
    """A job file, or a setting given on the command line, is wrong."""


class RunFileError(McattnError):
    """A run file is missing, in the way, of another format, or damaged."""


class LaunchError(McattnError):
    """The processes were not started as one MPI job, or their number does not fit."""


class SamplingError(McattnError):
    """The chain left the range in which its numbers mean anything."""


class TooFewSamplesError(McattnError):
    """There is not enough data for the estimate that was asked for."""
