"""Errors of the agent."""

from gpuagent_common.errors import GpuAgentError


class LockedError(GpuAgentError):
    """An error because another process holds the node or the spool."""


class AgentEndedError(GpuAgentError):
    """An error because the node's agent has ended, or is ending; another can be started."""


class SourceUnavailableError(GpuAgentError):
    """An error of a source that cannot work on this node; `remedy` is its fix (None: there is none).

    `is_fault`: what it needs is installed here, so a user expects its figures.
    """

    def __init__(self, reason: str, remedy: str | None = None, *, is_fault: bool = False) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.is_fault = is_fault


class SourceError(GpuAgentError):
    """A failed reading of a source; the next one may work."""
