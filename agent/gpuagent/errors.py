"""What can go wrong in the agent, said so that its user can mend it."""


class GpuAgentError(Exception):
    """Root of the agent's errors: one line that says what is wrong and what to do. The CLI exits with 1."""


class MisuseError(GpuAgentError):
    """The user asked for something that makes no sense. The CLI exits with 2."""


class LockedError(GpuAgentError):
    """Another process has the node or the spool."""


class SourceUnavailableError(GpuAgentError):
    """A source cannot work on this node: what is missing, and in `remedy` what to do about it (None: nothing)."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.remedy = remedy


class SourceError(GpuAgentError):
    """One reading of a source failed; the next one may work."""
