"""Errors of the collector."""

import sys

from gpuagent_common.errors import GpuAgentError


class NothingToCompareError(GpuAgentError):
    """The store has too little data for an answer."""


class OneSideError(NothingToCompareError):
    """All runs are on one side: it can be described, but not compared."""


class StoreError(GpuAgentError):
    """The store cannot be opened, read or written. `problem` is the message without its remedy."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        """Make the message of a problem and its remedy."""
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem = problem


class StoreIsHeldError(StoreError):
    """Another process uses the store's file."""

    # Its process id; None: not known.
    holder: int | None = None


class StoreIsReadError(StoreIsHeldError):
    """The store cannot be opened for writing as long as commands read its file, which found no collector to ask."""


class OlderSchemaError(StoreError):
    """The store has an older schema, and is opened read-only."""


class RejectedRecordsError(GpuAgentError):
    """A message can never be stored, however often it is sent."""


class ProtocolError(GpuAgentError):
    """A message of an agent makes no sense at its point of the stream, or is none at all."""


class MissingPackageError(GpuAgentError):
    """A package that only some commands need is not installed beside the collector."""

    def __init__(self, needed_by: str, package: str) -> None:
        """Take what needs it, and the package's name on an index."""
        super().__init__(f"{needed_by} need {package}; run: {sys.executable} -m pip install {package}")
