"""The processes on a GPU: which one NVML means by a number, its share of the GPU, and its pod and container."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.sources.support.cgroups import V2, parse_memberships
from gpuagent.sources.support.idle_gpus import Use
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, NvmlLostError, NvmlUnsupportedError
from gpuagent.sources.support.processes import number_at, pid_view, process_of, read_process_file

# CUDA opens /dev/nvidia-uvm. NVML, which may be open in processes that compute nothing, does not.
_CUDA_DEVICE = "nvidia-uvm"

# Success without samples, which pynvml raises, and not found.
_NOTHING_NEW = frozenset({0, 6})

_MOST_PERCENT = 100

# One call takes 2.6 ms of CPU time on an H200. The period is much longer than the driver's between two samples, so a
# GPU without new ones is idle.
_PERIOD_NANO = 5_000_000_000

# How far back to ask: a period, and the delay with which the driver has samples.
_LONGEST_MICROS = 7_000_000

_POD = re.compile(
    r"""/ (?: [^/]*kubepods[^/]*-pod | pod )  # systemd's slices repeat their parents' names, cgroupfs' folders do not
    ( [0-9a-f]{8} (?: [-_][0-9a-f]{4} ){3} [-_] [0-9a-f]{12}  # in a slice's name _ replaces -
    | [0-9a-f]{32} )  # static pods have the hash of their file
    (?: \.slice )? (?= [/:] | $ )""",
    re.VERBOSE,
)

# docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope, libpod-ID.scope, a bare ID, and SLICE:cri-containerd:ID.
_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The pod and container of a process.

    Attributes:
        pod_uid: its pod's metadata.uid, for static pods their config hash; None: in no pod.
        container_id: 64 hexadecimal digits; None: in no container of an engine that names its groups so.
    """

    pod_uid: str | None = None
    container_id: str | None = None


def parse_place(cgroup: str) -> Place:
    """Return the pod and container that a /proc/PID/cgroup names, as the host sees it.

    Containers may have groups of their own below their container's; the outermost names count.
    """
    memberships = parse_memberships(cgroup)
    # In hybrid hierarchies systemd's own has the names; version 2 alone has one group.
    for path in (memberships[name] for name in ("name=systemd", V2, "memory") if name in memberships):
        if container := _CONTAINER.search(path):
            pod = _POD.search(path)
            return Place(pod_uid=pod[1].replace("_", "-") if pod else None, container_id=container[1])
    return Place()


def place_of(proc: Path, pid: int) -> Place:
    """Return the pod and container of a process; empty where it is gone. `proc` must be the host's."""
    return parse_place(read_process_file(proc, pid, "cgroup") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that NVML means.

    Attributes:
        pid: the process in /proc, or NVML's number where that is unknown.
        run_id: the run that it belongs to; None: no run's, or unknown.
    """

    pid: int
    run_id: str | None


class GpuProcesses:
    """A finder of the processes that NVML means.

    Older drivers number the processes on a GPU as the host does, wherever they are asked. Newer ones (560 is one)
    number them as the PID namespace of the asking process does, and leave out those outside of it. For utilisation
    they keep the host's numbers. In the host's namespace that is all one. Elsewhere, a number means the process in the
    agent's namespace where this one has CUDA's device open, and otherwise the host's.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._view = pid_view(proc)

    @property
    def sees_all(self) -> bool:
        """Return whether every process on the GPU is listed and can be assigned to its run."""
        return self._view.of_host and self._view.depth == 0

    def find(self, number: int, run_of: Mapping[int, str]) -> Holder:
        """Return the process that NVML means by `number`; `run_of` has the runs' processes by their numbers in /proc.

        In a namespace below that of /proc, only a run's process can be found from inside.
        """
        if not self.sees_all:
            depth = self._view.depth
            inside = (
                next((pid for pid in run_of if number_at(self._proc, pid, depth) == number), None)
                if depth
                else process_of(self._proc, number)
            )
            if inside is not None and _computes(self._proc, inside):
                return Holder(pid=inside, run_id=run_of.get(inside))
        if not self._view.of_host:
            return Holder(pid=number, run_id=None)
        # The driver means the thread that opened the GPU, which need not be its process's first.
        pid = number if number in run_of else process_of(self._proc, number) or number
        return Holder(pid=pid, run_id=run_of.get(pid))


def _computes(proc: Path, pid: int) -> bool:
    """Return whether a process has CUDA's device open; False where this user may not look.

    psutil.Process.open_files() leaves out devices.
    """
    try:
        return any(file.readlink().name == _CUDA_DEVICE for file in (proc / str(pid) / "fd").iterdir())
    except OSError:
        return False


IDLE = Use(sm_percent=0.0, memory_percent=0.0)


class ProcessUse:
    """The use of one GPU by each process; the driver reports only those that did something.

    Asked for what is newer than a time stamp, it returns the mean of its samples since then, one for each process.
    """

    def __init__(self) -> None:
        # The time stamp of the newest sample, by the driver's clock, and when it was read; 0: there was none yet.
        self._last_micros = 0
        self._last_read_nano = 0
        self._asked_nano: int | None = None
        self._supported = True

    def read(self, nvml: Nvml, uuid: str, now: Instant, *, at_once: bool = False) -> Mapping[int, Use] | None:
        """Return the use since the last time, by NVML's numbers; any other process did nothing.

        None: the driver does not report it, or was asked just before and need not answer `at_once`. Raises
        NvmlLostError: the GPU cannot be reached.
        """
        is_early = self._asked_nano is not None and now.monotonic_nano - self._asked_nano < _PERIOD_NANO
        if (is_early and not at_once) or not self._supported:
            return None
        self._asked_nano = now.monotonic_nano
        try:
            if not self._last_micros and (first := _ask(nvml, uuid, 0)):
                # It is the mean of an unknown time, but tells the driver's clock.
                self._last_micros = max(0, first[-1]["timeStamp"] - _PERIOD_NANO // 1000)
                self._last_read_nano = now.monotonic_nano
            passed_micros = (now.monotonic_nano - self._last_read_nano) // 1000
            since = max(self._last_micros, self._last_micros + passed_micros - _LONGEST_MICROS)
            samples = _ask(nvml, uuid, since)
        except NvmlUnsupportedError:
            self._supported = False
            return None
        except NvmlLostError:
            raise
        except NvmlError as error:
            return {} if error.code in _NOTHING_NEW else None
        if samples:
            self._last_micros, self._last_read_nano = samples[-1]["timeStamp"], now.monotonic_nano
        return {one["pid"]: _use_since(since, one) for one in samples}


def _ask(nvml: Nvml, uuid: str, since: int) -> Sequence[Mapping[str, int]]:
    """Return the samples that are newer than a time stamp, the newest last."""
    samples: Sequence[Mapping[str, int]] = nvml.ask("nvmlDeviceGetProcessUtilization", uuid, since)
    # The driver also returns old samples, and invalid ones with impossible shares.
    new = [one for one in samples if one["timeStamp"] > since and one["smUtil"] <= _MOST_PERCENT]
    return sorted(new, key=lambda sample: sample["timeStamp"])


def _use_since(since: int, sample: Mapping[str, int]) -> Use:
    covered_seconds = (sample["timeStamp"] - since) / 1e6
    return Use(
        sm_percent=float(sample["smUtil"]),
        memory_percent=float(sample["memUtil"]),
        busy_seconds=sample["smUtil"] / 100 * covered_seconds,
        covered_seconds=covered_seconds,
    )
