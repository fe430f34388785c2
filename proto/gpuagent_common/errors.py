"""Errors for the user, each printed as one line by the command line."""


class GpuAgentError(Exception):
    """The root of all errors, whose text is one line with a remedy. The CLI exits with 1."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook prints: IPython calls this method instead of printing a traceback."""
        return [f"error: {self}"]


class MisuseError(GpuAgentError):
    """A request that makes no sense as written. The CLI exits with 2."""
