"""Errors of the agent."""

from gpuagent_common.errors import GpuAgentError


class LockedError(GpuAgentError):
    """Another process has the node or the spool."""


class SourceUnavailableError(GpuAgentError):
    """A source cannot work on this node: what is missing, and in `remedy` what to do about it (None: nothing)."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.remedy = remedy


class SourceError(GpuAgentError):
    """One reading of a source failed; the next one may work."""
