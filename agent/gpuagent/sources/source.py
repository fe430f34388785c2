"""What a source is: one thing that can be sampled."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from gpuagent.clock import Instant
from gpuagent.sources.support.nvml_api import OpenNvml, open_nvml

# What a cell of a sample can hold. None is absent, which is another thing than 0.
Value = float | int | str | None


class Lane(Enum):
    """Which thread reads a source. A slow call never delays a fast tick."""

    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Values of one row of `table`.

    Readings of one tick that agree in `table` and `key` become one row, so several sources can fill one. `key` tells
    rows of one tick apart (a device, a run, a path; None where the table has one row a tick) and is not stored: what is
    to be stored stands in `values`, under the names of the table's columns.
    """

    table: str
    values: Mapping[str, Value]
    key: int | str | None = None


class ActiveRuns(Protocol):
    """The runs that are being executed on this node."""

    def processes(self) -> Sequence[tuple[str, int]]:
        """Return (run_id, pid) of each active run that has begun: its processes are the descendants of this one, its
        supervisor or its container's first process, not itself."""
        ...


class NoRuns:
    """Nothing is being executed."""

    def processes(self) -> Sequence[tuple[str, int]]:
        """Return nothing."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What a source may need: where the host's file systems are, how to reach NVML, and what is running."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    open_nvml: OpenNvml = open_nvml
    runs: ActiveRuns = field(default_factory=NoRuns)
    per_core: bool = False


class Source(Protocol):
    """One thing that is sampled.

    Its constructor takes a SourceContext, and raises SourceUnavailableError when it cannot work here.
    """

    name: str
    lane: Lane
    # It is read at the agent's rate, but never more often than this.
    max_rate_hz: float

    def read(self, now: Instant) -> Iterable[Reading]:
        """Read once.

        Raises:
            SourceError: this reading failed; what was yielded before counts. Values that alone are unavailable are
                None instead.
        """
        ...

    def close(self) -> None:
        """Let go of what the source holds open."""
        ...
