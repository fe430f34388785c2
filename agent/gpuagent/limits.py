"""What a run may use of its node: the rules of the wire format, with the agent's own error."""

from collections.abc import Iterable

from gpuagent.errors import MisuseError
from gpuagent_proto import limits
from gpuagent_proto.limits import NO_LIMITS, CpuChange, Limits, LimitsError, memory_text
from gpuagent_proto.v1.run_pb2 import RunSpec


def make_limits(cpus: float | None, memory: str | None, changes: Iterable[str]) -> Limits:
    """Return the limits that a user wrote down.

    Raises:
        MisuseError: one cannot be read, or two changes are at the same time.
    """
    try:
        return limits.make_limits(cpus, memory, changes)
    except LimitsError as error:
        raise MisuseError(str(error)) from error


def read_limits(spec: RunSpec) -> Limits:
    """Return the limits that an agent is asked to keep.

    Raises:
        MisuseError: nothing could keep them.
    """
    try:
        return limits.read_limits(spec)
    except LimitsError as error:
        raise MisuseError(str(error)) from error


__all__ = ["NO_LIMITS", "CpuChange", "Limits", "make_limits", "memory_text", "read_limits"]
