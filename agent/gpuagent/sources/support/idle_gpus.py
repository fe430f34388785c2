"""Shared state of the sources of GPUs: which have no work and are asked less often, and the processes on each.

An idle GPU's readings say the same ten times a second. A run, which may need any GPU, makes all of them count as at
work before its program starts, so no run has fewer samples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuagent.clock import Instant

_Value = float | int | str | None

# The longest time between two readings of an idle GPU.
LOOK_NANO = 1_000_000_000

# Deadlines are met within milliseconds; a look that is due by less counts as due.
_SLACK_NANO = 20_000_000

# After this long without a sign of work a GPU is idle.
QUIET_NANO = 10_000_000_000

# More power than at the last look is a sign of work; an H200 without any varies by less than 2 W.
_RISE_WATTS = 20.0


@dataclass(slots=True)
class _Gpu:
    # The last look's time and figures.
    looked_nano: int | None = None
    memory_bytes: _Value = None
    watts: float = 0.0
    # The time in which kernels ran, up to the last reading; None: the driver does not say it.
    busy_seconds: float | None = None
    busy_nano: int | None = None
    # Number of listed processes; 0 where they are not visible.
    processes: int = 0
    # The time of the first look without a sign of work after the last one with; None: the last look found one.
    quiet_nano: int | None = None
    is_idle: bool = False


class Activity:
    """The signs of work on each GPU: utilisation, memory, power, processes and runs.

    The source on the fast lane looks and notes; those on the slow lane ask. A GPU without utilisation is never idle.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, _Gpu] = {}

    def is_idle(self, uuid: str) -> bool:
        """Return whether the GPU has shown no sign of work for a while."""
        gpu = self._gpus.get(uuid)
        return gpu is not None and gpu.is_idle

    def is_look_due(self, uuid: str, now: Instant) -> bool:
        """Return whether the last look was a second ago, or there was none."""
        looked_nano = self._gpus[uuid].looked_nano if uuid in self._gpus else None
        return looked_nano is None or now.monotonic_nano - looked_nano >= LOOK_NANO - _SLACK_NANO

    def busy_seconds(self, uuid: str) -> float | None:
        """Return the time in which kernels ran since the first reading; None: the driver does not say it."""
        gpu = self._gpus.get(uuid)
        return gpu.busy_seconds if gpu else None

    def note_busy(self, uuid: str, utilization_percent: _Value, now: Instant) -> None:
        """Add what a reading says of the time since the one before; time without readings, as of a lost GPU, is not."""
        gpu = self._gpus.setdefault(uuid, _Gpu())
        if isinstance(utilization_percent, (int, float)):
            passed_nano = 0 if gpu.busy_nano is None else now.monotonic_nano - gpu.busy_nano
            counted_seconds = min(passed_nano, 2 * LOOK_NANO) / 1e9
            gpu.busy_seconds = (gpu.busy_seconds or 0.0) + utilization_percent / 100 * counted_seconds
            gpu.busy_nano = now.monotonic_nano

    def rests_until_nano(self) -> int:
        """Return the monotonic time of the next look if all GPUs are idle; 0: one is at work."""
        gpus = tuple(self._gpus.values())
        if not all(gpu.is_idle for gpu in gpus):
            return 0
        return min((gpu.looked_nano or 0 for gpu in gpus), default=0) + LOOK_NANO - _SLACK_NANO

    def look(self, uuid: str, values: Mapping[str, _Value], now: Instant) -> None:
        """Note the GPU's figures."""
        gpu = self._gpus.setdefault(uuid, _Gpu())
        utilization, memory_bytes = values.get("utilization_percent"), values.get("memory_used_bytes")
        found = values.get("power_watts")
        watts = found if isinstance(found, float) else 0.0
        works = utilization != 0 or memory_bytes != gpu.memory_bytes or watts > gpu.watts + _RISE_WATTS
        gpu.looked_nano, gpu.memory_bytes, gpu.watts = now.monotonic_nano, memory_bytes, watts
        if works or gpu.processes:
            gpu.quiet_nano = None
        elif gpu.quiet_nano is None:
            gpu.quiet_nano = now.monotonic_nano
        quiet_nano = gpu.quiet_nano  # the other lane may reset it now
        gpu.is_idle = quiet_nano is not None and now.monotonic_nano - quiet_nano >= QUIET_NANO

    def note_processes(self, uuid: str, count: int) -> None:
        """Note the number of processes on the GPU."""
        self._gpus.setdefault(uuid, _Gpu()).processes = count
        if count:
            self._note_work(uuid)

    def note_runs(self) -> None:
        """Note that the node has a run, which may use any GPU."""
        for uuid in tuple(self._gpus):  # the other lane may add one
            self._note_work(uuid)

    def _note_work(self, uuid: str) -> None:
        self._gpus[uuid].quiet_nano, self._gpus[uuid].is_idle = None, False


class SparingPace:
    """The pace of a source on the slow lane: an idle GPU is read only once a period."""

    def __init__(self, activity: Activity, period_nano: int) -> None:
        self._activity = activity
        self._period_nano = period_nano
        self._read_nano: dict[str, int] = {}

    def is_due(self, uuid: str, now: Instant) -> bool:
        """Return whether to read the GPU now."""
        read_nano = self._read_nano.get(uuid)
        is_due = read_nano is None or now.monotonic_nano - read_nano >= self._period_nano - _SLACK_NANO
        return is_due or not self._activity.is_idle(uuid)

    def note_read(self, uuid: str, now: Instant) -> None:
        """Begin the next period. Not after a failure: a lost GPU that is not asked would count as back."""
        self._read_nano[uuid] = now.monotonic_nano


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
