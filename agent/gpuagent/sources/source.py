"""The contract of a source: one thing that can be sampled."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from gpuagent.clock import Instant
from gpuagent.sources.support.idle_gpus import Activity, GpuHolders
from gpuagent.sources.support.nvml_api import OpenNvml, open_nvml

# A cell of a sample. None is absent, which differs from 0.
Value = float | int | str | None


class Lane(Enum):
    """The thread that reads a source. A slow call never delays a fast tick."""

    FAST = "fast"
    SLOW = "slow"


class Reading(NamedTuple):  # made in a quarter of a frozen dataclass's time
    """Values of one row of `table`, under the names of its columns.

    Readings of one tick that agree in `table` and `key` become one row, so several sources can fill one. `key`
    distinguishes the rows of one tick (a device, a run, a path; None where the table has one row a tick) and is not
    stored.
    """

    table: str
    values: Mapping[str, Value]
    key: int | str | None = None


class Computed(Mapping[str, Value]):
    """The values of a reading that are computed when they become a row; see `RecordBuffer`."""

    __slots__ = ("_arguments", "_compute", "_values")

    def __init__(self, compute: Callable[..., Mapping[str, Value]], *arguments: object) -> None:
        self._compute = compute
        self._arguments = arguments
        self._values: Mapping[str, Value] | None = None

    def all(self) -> Mapping[str, Value]:
        """Return the values; a look at each through this class would take several times as long."""
        if self._values is None:
            self._values = self._compute(*self._arguments)
        return self._values

    def __getitem__(self, column: str) -> Value:
        return self.all()[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self.all())


class ActiveRuns(Protocol):
    """The runs in progress on this node."""

    @property
    def is_busy(self) -> bool:
        """Return whether a run is queued or under way."""
        ...

    def processes(self) -> Sequence[tuple[str, int]]:
        """Return (run_id, pid) of each active run that has begun.

        `pid` is the run's supervisor or its container's first process. The run's processes are its descendants.
        """
        ...

    def programs(self) -> Collection[int]:
        """Return those of `processes` that belong to their runs: a container's first process may be the program."""
        ...


class NoRuns:
    """A node without runs."""

    is_busy = False

    def processes(self) -> Sequence[tuple[str, int]]:
        """Return nothing."""
        return ()

    def programs(self) -> Collection[int]:
        """Return none."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account that Kubernetes mounts into a pod, and the API server's host and port; None: it is unknown."""

    folder: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    host: str | None = None
    port: int = 443

    @classmethod
    def of_this_pod(cls, environment: Mapping[str, str] = os.environ) -> "Account":
        """Return the account of this pod, with the address that its variables name."""
        port = environment.get("KUBERNETES_SERVICE_PORT", "")
        return cls(host=environment.get("KUBERNETES_SERVICE_HOST"), port=int(port) if port.isdecimal() else 443)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The kubelet's socket and its folder of logs, and the way to the API server."""

    socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    logs: Path = Path("/var/log/pods")
    account: Account = field(default_factory=Account.of_this_pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """The needs of sources: the host's file systems, the way to NVML, and the active runs.

    Readings through psutil come from `psutil.PROCFS_PATH`, which must agree with `proc`.
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    machine: str = field(default_factory=lambda: os.uname().machine)
    open_nvml: OpenNvml = open_nvml
    runs: ActiveRuns = field(default_factory=NoRuns)
    # The signs of work on GPUs, shared by the sources that ask them.
    activity: Activity = field(default_factory=Activity)
    # The processes on GPUs, shared by the sources of one lane.
    holders: GpuHolders = field(default_factory=GpuHolders)
    # What is recorded of the owners of work: full, ids or off; and the only Slurm job that counts, None: everything.
    owners: str = "full"
    only_job: str | None = None
    cluster: Cluster = field(default_factory=Cluster)


class Source(Protocol):
    """One thing that is sampled.

    Its constructor takes a SourceContext, and raises SourceUnavailableError when it cannot work here.
    """

    name: str
    lane: Lane
    # The limit of its rate; below, it follows the agent's.
    max_rate_hz: float

    def read(self, now: Instant) -> Iterable[Reading]:
        """Read once.

        Raises SourceError: this reading failed; earlier rows count. A value that alone is unavailable is None instead.
        """
        ...

    def close(self) -> None:
        """Release all that the source holds open."""
        ...
