"""Errors of the collector."""

from gpuagent_common.errors import GpuAgentError


class NothingToCompareError(GpuAgentError):
    """The store has too little data for an answer."""


class StoreError(GpuAgentError):
    """The store cannot be opened, read or written."""


class RejectedRecordsError(GpuAgentError):
    """A message can never be stored, however often it is sent."""
