"""The processes on each GPU, noted by the sources that ask NVML for those that only need the answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuagent.clock import Instant


class Held(NamedTuple):
    """The part of a GPU that a process has: memory, and the share of the time in which its kernels ran."""

    memory_bytes: int | None
    sm_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The use of a GPU by one process since the reading before.

    Attributes:
        sm_percent: the share of the time in which its kernels ran.
        memory_percent: the share in which it read or wrote device memory.
        busy_seconds: the time in which its kernels ran.
        covered_seconds: the time that the shares are of.
    """

    sm_percent: float
    memory_percent: float
    busy_seconds: float = 0.0
    covered_seconds: float = 0.0


@dataclass(slots=True)
class GpuHolders:
    """The last readings of each GPU, by its UUID. The sources that share it are read by one thread.

    Attributes:
        processes: the processes on it, by their numbers in /proc; the driver reports shares every 5 s.
        energy_joules: the energy counter, up to 10 s old.
        renew_energy: reads the counter now, which takes 3 ms.
        renew_use: asks the driver now for the use of a GPU, which takes 3 ms too.
        add_use: takes what the driver says of a GPU's use, each time once.
    """

    processes: dict[str, Mapping[int, Held]] = field(default_factory=dict)
    energy_joules: dict[str, float] = field(default_factory=dict)
    renew_energy: Callable[[str], None] = field(default=lambda _: None)
    renew_use: Callable[[str, Instant], None] = field(default=lambda _uuid, _now: None)
    add_use: Callable[[str, Mapping[int, Use], Instant], None] = field(default=lambda _uuid, _use, _now: None)

    def note_processes(
        self, uuid: str, memory: Mapping[int, int | None], use: Mapping[int, float | None] | None
    ) -> None:
        """Note the memory of each process, and the shares; None: they were not asked for now, and the last count."""
        before = self.processes.get(uuid, {})
        self.processes[uuid] = {
            pid: Held(size, before.get(pid, Held(None, None)).sm_percent if use is None else use.get(pid))
            for pid, size in memory.items()
        }
