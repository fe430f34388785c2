"""Errors of the collector."""

from gpuagent_common.errors import GpuAgentError


class NothingToCompareError(GpuAgentError):
    """The store holds too little for what was asked: what it has, and what to try."""


class StoreError(GpuAgentError):
    """The store cannot be opened, read or written."""


class RejectedRecordsError(GpuAgentError):
    """A message can never be stored, however often it is sent: why, in words."""
