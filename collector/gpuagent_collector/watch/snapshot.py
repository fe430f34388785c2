"""The present state of nodes, GPUs and runs, read from the store."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuagent_collector.metrics.throttling import held_back_by
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.times import utc_now
from gpuagent_collector.watch.statements import GPUS_SQL, NODES_SQL, RUNS_SQL

# A clock that differs by more is reported: its time stamps do not match those of other nodes.
CLOCK_TOLERANCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNow:
    """A GPU or MIG instance. A figure without a reading in the last 30 s is None; names and units are the store's.

    Attributes:
        device_index: for an instance, the index of its GPU.
    """

    node_id: int
    device_id: int
    parent_device_id: int | None
    uuid: str | None
    device_index: int | None
    gpu_instance_id: int | None
    name: str | None
    memory_total_bytes: int | None
    power_limit_watts: float | None
    utilization_percent: float | None
    sm_active_percent: float | None
    tensor_active_percent: float | None
    dram_active_percent: float | None
    memory_used_bytes: int | None
    power_watts: float | None
    temperature_celsius: float | None
    sm_clock_mhz: float | None
    throttle_reasons: int | None
    process_count: int | None
    energy_joules: float | None
    pcie_send_bytes_per_second: float | None
    pcie_receive_bytes_per_second: float | None
    nvlink_send_bytes_per_second: float | None
    nvlink_receive_bytes_per_second: float | None

    @property
    def is_whole(self) -> bool:
        """True for a GPU, False for an instance of one."""
        return self.parent_device_id is None

    @property
    def place(self) -> str | None:
        """Its number in its node, as nvidia-smi counts: 0, or of a MIG instance 0.7."""
        numbers = [str(number) for number in (self.device_index, self.gpu_instance_id) if number is not None]
        return ".".join(numbers) or None

    @property
    def is_held_back(self) -> bool | None:
        """True if heat, power or hardware hold its clocks back; None: the GPU does not report it."""
        return None if self.throttle_reasons is None else held_back_by(self.throttle_reasons) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNow:
    """A node that delivered in the last hour. A figure without a reading in the last 30 s is None.

    Attributes:
        sample_age_seconds: since its last sample, by its own clock; None: it is silent or has left.
        heard_age_seconds: since its last commit, by the collector's clock.
        ended_age_seconds: since its newest agent process ended in good order; None: it runs, or went without a goodbye.
        clock_offset_seconds: the collector's clock less the node's.
        gpus: the GPUs that its newest agent process found, by index, each before its MIG instances.
    """

    node_id: int
    node_uuid: str | None
    hostname: str | None
    platform: str | None
    cpu_threads: int | None
    sample_age_seconds: float | None
    heard_age_seconds: float
    ended_age_seconds: float | None
    clock_offset_seconds: float | None
    cpu_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    load_1m: float | None
    cpu_power_watts: float | None
    disk_read_bytes_per_second: float | None
    disk_write_bytes_per_second: float | None
    network_receive_bytes_per_second: float | None
    network_send_bytes_per_second: float | None
    gpus: Sequence[GpuNow]

    @property
    def is_silent(self) -> bool:
        """True if recent samples are missing though its agent did not end in good order."""
        return self.sample_age_seconds is None and self.ended_age_seconds is None

    @property
    def has_left(self) -> bool:
        """True if recent samples are missing because its agent ended in good order."""
        return self.sample_age_seconds is None and self.ended_age_seconds is not None

    @property
    def clock_is_wrong(self) -> bool:
        """True if its clock differs from the collector's by more than the tolerance."""
        return abs(self.clock_offset_seconds or 0.0) > CLOCK_TOLERANCE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNow:
    """A run that is under way, or has ended in the last hour.

    Attributes:
        elapsed_seconds: since its program started, or how long it took; None: it has not started.
        ended_age_seconds: since it ended; None: it has not.
        items_per_second: while it runs, the rate of the steps of the last 30 s, summed over ranks; afterwards the
            run's throughput, None until the collector has computed it.
    """

    run_id: str
    workload: str | None
    platform: str | None
    hostname: str | None
    interference: str | None
    repeat: int | None
    status: str | None
    exit_code: int | None
    reason: str | None
    phase: str | None
    elapsed_seconds: float | None
    ended_age_seconds: float | None
    items_per_second: float | None

    @property
    def is_open(self) -> bool:
        """True while it is queued or running."""
        return self.ended_age_seconds is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of all nodes and runs at one moment, in UTC."""

    taken_at: datetime
    nodes: Sequence[NodeNow]
    runs: Sequence[RunNow]


def take_snapshot(ask: Ask) -> Snapshot:
    """Read the present state.

    Raises:
        GpuAgentError: the store cannot be read.
    """
    gpus: dict[int, list[GpuNow]] = defaultdict(list)
    for row in ask(GPUS_SQL):
        gpus[row["node_id"]].append(GpuNow(**row))
    return Snapshot(
        taken_at=utc_now(),
        nodes=[NodeNow(**row, gpus=gpus[row["node_id"]]) for row in ask(NODES_SQL)],
        runs=[RunNow(**row) for row in ask(RUNS_SQL)],
    )
