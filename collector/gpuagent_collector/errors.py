"""Errors of the collector."""

from gpuagent_common.errors import GpuAgentError


class NothingToCompareError(GpuAgentError):
    """The store has too little data for an answer."""


class OneSideError(NothingToCompareError):
    """All runs are on one side: it can be described, but not compared."""


class StoreError(GpuAgentError):
    """The store cannot be opened, read or written."""


class StoreIsReadError(StoreError):
    """The store cannot be opened for writing as long as commands read its file, which found no collector to ask."""


class RejectedRecordsError(GpuAgentError):
    """A message can never be stored, however often it is sent."""


class ProtocolError(GpuAgentError):
    """A message of an agent makes no sense at its point of the stream, or is none at all."""
