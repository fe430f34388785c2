"""Statuses of a run, in reports of agents and in the store."""

from enum import Enum


class RunStatus(str, Enum):
    """The status of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"


FINAL_STATUSES = tuple(status.value for status in RunStatus if status not in (RunStatus.QUEUED, RunStatus.RUNNING))
OPEN_STATUSES = tuple(status.value for status in RunStatus if status.value not in FINAL_STATUSES)
