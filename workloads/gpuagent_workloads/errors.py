"""What can go wrong in a workload, said so that its user can mend it."""


class WorkloadError(Exception):
    """Root of the workloads' errors: one line that says what is wrong and what to do. The command exits with 1."""


class Terminated(BaseException):
    """SIGTERM arrived. Not an Exception: it passes through handlers of errors, as KeyboardInterrupt does."""


class MisuseError(WorkloadError):
    """The user asked for something that makes no sense. The command exits with 2."""


class NonFiniteError(WorkloadError):
    """A figure is NaN or infinite, so the run has failed: such a value says nothing, and JSON cannot hold it."""


class DataError(WorkloadError):
    """A data file is missing, damaged, or not what it claims to be."""
