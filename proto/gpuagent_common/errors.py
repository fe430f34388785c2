"""Errors that a user can act on. The command line prints each as one line."""


class GpuAgentError(Exception):
    """The root of all errors: one line that says what happened and what to do. The CLI exits with 1."""


class MisuseError(GpuAgentError):
    """A request that makes no sense as written. The CLI exits with 2."""
