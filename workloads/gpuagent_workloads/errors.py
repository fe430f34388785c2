"""Errors of the workloads that a user can act on. `gpuagent_common.errors` has their root and MisuseError."""

from gpuagent_common.errors import GpuAgentError


class WorkloadError(GpuAgentError):
    """A run that failed: one line that says what happened and what to do. The command exits with 1."""


class Terminated(BaseException):
    """The arrival of SIGTERM. Not an Exception: it passes through handlers of errors, as KeyboardInterrupt does."""


class NonFiniteError(WorkloadError):
    """A figure that is NaN or infinite: the run has failed, and JSON cannot hold such a value."""


class DataError(WorkloadError):
    """A data file that is missing, damaged, or of another format than it claims."""
