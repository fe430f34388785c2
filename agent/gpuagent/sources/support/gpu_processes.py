"""Who computes on a GPU: which process NVML means by a number, and how much of the GPU's time it took."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, NvmlLostError, NvmlUnsupportedError
from gpuagent.sources.support.pids import number_at, pid_view, process_of

# CUDA opens /dev/nvidia-uvm. NVML, which may be open in processes that compute nothing, does not.
_CUDA_DEVICE = "nvidia-uvm"

# Success without samples, which pynvml raises, and not found.
_NOTHING_NEW = frozenset({0, 6})

_MOST_PERCENT = 100

# How often the driver is asked: one call takes 2.6 ms of CPU time on an H200. It is much longer than the driver takes
# between two samples, so a GPU of which there is nothing new is idle.
_PERIOD_NANO = 5_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whom NVML means.

    Attributes:
        pid: the process in /proc, or the number as it was given where that cannot be told.
        run_id: the run that it belongs to; None: no run's, or not to be told.
    """

    pid: int
    run_id: str | None


class GpuProcesses:
    """Finds the processes that NVML means.

    Older drivers number the processes on a GPU as the host does, wherever they are asked. Newer ones (560 is one)
    number them as the PID namespace of the asking process does and leave out those that are not in it, but keep to the
    host's numbers where they tell utilisation. In the host's namespace that is all one. Elsewhere, a number is taken to
    be that of a process in the agent's namespace where this one has CUDA's device open, and else to be the host's.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._view = pid_view(proc)

    @property
    def sees_all(self) -> bool:
        """Whether every process on the GPU is listed, and it can be told of each whether it is a run's."""
        return self._view.of_host and self._view.depth == 0

    def find(self, number: int, run_of: Mapping[int, str]) -> Holder:
        """Return whom NVML means by `number`; `run_of` has the runs' processes by their numbers in /proc."""
        inside = None if self.sees_all else self._inside(number, run_of)
        if inside is not None and _computes(self._proc, inside):
            return Holder(pid=inside, run_id=run_of.get(inside))
        if not self._view.of_host:
            return Holder(pid=number, run_id=None)
        # The driver means the thread that opened the GPU, which need not be its process's first.
        pid = number if number in run_of else process_of(self._proc, number) or number
        return Holder(pid=pid, run_id=run_of.get(pid))

    def _inside(self, number: int, run_of: Mapping[int, str]) -> int | None:
        """Return the process that has this number in the agent's namespace; seen from above, only a run's is found."""
        depth = self._view.depth
        if depth == 0:
            return process_of(self._proc, number)
        return next((pid for pid in run_of if number_at(self._proc, pid, depth) == number), None)


def _computes(proc: Path, pid: int) -> bool:
    """Tell whether a process has CUDA's device open; False where it may not be looked at."""
    try:
        return any(file.readlink().name == _CUDA_DEVICE for file in (proc / str(pid) / "fd").iterdir())
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The share of the time since the reading before, in percent, in which kernels of a process ran, and in which it
    read or wrote device memory.
    """

    sm_percent: float
    memory_percent: float


IDLE = Use(sm_percent=0.0, memory_percent=0.0)


class ProcessUse:
    """How busy each process keeps one GPU; the driver tells only of those that did something."""

    def __init__(self) -> None:
        self._last_micros = 0
        self._asked_nano: int | None = None
        self._supported = True

    def read(self, nvml: Nvml, uuid: str, now: Instant) -> Mapping[int, Use] | None:
        """Return what processes did since the last time, by NVML's numbers; who is not among them did nothing.

        None: the driver does not tell, or was asked just before.

        Raises:
            NvmlLostError: the GPU cannot be reached.
        """
        if self._asked_nano is not None and now.monotonic_nano - self._asked_nano < _PERIOD_NANO:
            return None
        self._asked_nano = now.monotonic_nano
        samples = self._ask(nvml, uuid)
        if samples:
            self._last_micros = max(sample["timeStamp"] for sample in samples)
        return None if samples is None else _newest(samples)

    def _ask(self, nvml: Nvml, uuid: str) -> Sequence[Mapping[str, int]] | None:
        if not self._supported:
            return None
        try:
            samples: Sequence[Mapping[str, int]] = nvml.ask("nvmlDeviceGetProcessUtilization", uuid, self._last_micros)
        except NvmlUnsupportedError:
            self._supported = False
            return None
        except NvmlLostError:
            raise
        except NvmlError as error:
            return () if error.code in _NOTHING_NEW else None
        # The driver also hands out old samples, and some that are none: with shares that cannot be.
        return [one for one in samples if one["timeStamp"] > self._last_micros and one["smUtil"] <= _MOST_PERCENT]


def _newest(samples: Iterable[Mapping[str, int]]) -> dict[int, Use]:
    return {
        sample["pid"]: Use(sm_percent=float(sample["smUtil"]), memory_percent=float(sample["memUtil"]))
        for sample in sorted(samples, key=lambda sample: sample["timeStamp"])
    }
