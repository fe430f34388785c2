"""`/metrics`: the latest samples and the state of ingest, as Prometheus reads them."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from gpuagent_collector import __version__
from gpuagent_collector.watch.snapshot import GpuNow, NodeNow, Snapshot
from gpuagent_collector.web.answers import NO_CONTENT, Query
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A metric with one value for each node or GPU.

    Attributes:
        name: without the prefix `gpuagent_`; a counter's without `_total`.
        attribute: of NodeNow or GpuNow; None is no value.
        help: its meaning.
        convert: converts from the store's unit to the metric's.
        is_counter: True if it only grows, until the driver is loaded again.
    """

    name: str
    attribute: str
    help: str
    convert: Callable[[float], float] = float
    is_counter: bool = False


def _series(name: str, attribute: str, help_text: str, convert: Callable[[float], float] = float) -> Series:
    return Series(name=name, attribute=attribute, help=help_text, convert=convert)


def _ratio(percent: float) -> float:
    return percent / 100


def _hertz(megahertz: float) -> float:
    return megahertz * 1e6


_COUNTED = "where GPM or DCGM reports it"

NODE_SERIES: tuple[Series, ...] = (
    _series("node_silent", "is_silent", "1 if no sample came in the last 30 s and its agent has not ended, else 0"),
    _series("node_left", "has_left", "1 if its agent ended in good order, else 0"),
    _series("node_heard_age_seconds", "heard_age_seconds", "Time since something of the node was last committed"),
    _series("node_sample_age_seconds", "sample_age_seconds", "Age of the last sample, by the node's clock"),
    _series(
        "node_clock_offset_seconds",
        "clock_offset_seconds",
        "The collector's clock less the node's: above 0 the node's is behind",
    ),
    _series("node_same_identity", "rivals", "Other machines that have the node's identity"),
    _series("node_cpus", "cpu_threads", "Logical CPUs"),
    _series("node_cpu_utilization_ratio", "cpu_percent", "Share of all logical CPUs' time that was not idle", _ratio),
    _series("node_cpu_power_watts", "cpu_power_watts", "Power of all processors, where RAPL can be read"),
    _series("node_load1", "load_1m", "Load average over a minute"),
    _series("node_memory_used_bytes", "memory_used_bytes", "Memory in use: total less available"),
    _series("node_memory_size_bytes", "memory_total_bytes", "The node's memory"),
    _series("node_disk_read_bytes_per_second", "disk_read_bytes_per_second", "Read from whole disks"),
    _series("node_disk_write_bytes_per_second", "disk_write_bytes_per_second", "Written to whole disks"),
    _series(
        "node_network_receive_bytes_per_second",
        "network_receive_bytes_per_second",
        "Received on all interfaces but loopback",
    ),
    _series(
        "node_network_send_bytes_per_second", "network_send_bytes_per_second", "Sent on all interfaces but loopback"
    ),
)

GPU_SERIES: tuple[Series, ...] = (
    _series(
        "gpu_utilization_ratio",
        "utilization_percent",
        "Share of time in which any kernel ran; says nothing of how much of the GPU it used",
        _ratio,
    ),
    _series(
        "gpu_sm_active_ratio", "sm_active_percent", f"Multiprocessors with work, share of time; {_COUNTED}", _ratio
    ),
    _series(
        "gpu_tensor_active_ratio", "tensor_active_percent", f"Tensor pipes busy, share of time; {_COUNTED}", _ratio
    ),
    _series("gpu_dram_active_ratio", "dram_active_percent", f"Memory bandwidth, share of its peak; {_COUNTED}", _ratio),
    _series("gpu_memory_used_bytes", "memory_used_bytes", "Device memory in use, the driver's own share apart"),
    _series("gpu_memory_size_bytes", "memory_total_bytes", "Device memory"),
    _series("gpu_power_watts", "power_watts", "Power of the whole board"),
    _series("gpu_power_limit_watts", "power_limit_watts", "Enforced power limit"),
    _series("gpu_temperature_celsius", "temperature_celsius", "Temperature of the GPU's core"),
    _series("gpu_sm_clock_hertz", "sm_clock_mhz", "SM clock", _hertz),
    _series("gpu_held_back", "is_held_back", "1 if heat, power or hardware hold its clocks back, else 0"),
    _series("gpu_processes", "process_count", "Compute processes on the GPU, everybody's, where all can be seen"),
    _series("gpu_pcie_send_bytes_per_second", "pcie_send_bytes_per_second", f"From the GPU over PCIe; {_COUNTED}"),
    _series("gpu_pcie_receive_bytes_per_second", "pcie_receive_bytes_per_second", f"To the GPU over PCIe; {_COUNTED}"),
    _series(
        "gpu_nvlink_send_bytes_per_second", "nvlink_send_bytes_per_second", f"From the GPU over NVLink; {_COUNTED}"
    ),
    _series(
        "gpu_nvlink_receive_bytes_per_second", "nvlink_receive_bytes_per_second", f"To the GPU over NVLink; {_COUNTED}"
    ),
    Series(
        name="gpu_energy_joules",
        attribute="energy_joules",
        help="Energy since the driver was loaded, read every 10 s; Volta and newer",
        is_counter=True,
    ),
)


_LOG = logging.getLogger(__name__)

_NODE_LABELS = ("node", "platform", "node_uuid")
_GPU_LABELS = (*_NODE_LABELS, "gpu", "uuid", "name")
_RUN_LABELS = ("platform", "workload", "status")

Labelled = tuple[Sequence[str], NodeNow | GpuNow]


class Metrics:
    """The metrics of one registry."""

    def __init__(self, snapshot: Callable[[], Snapshot], others: Iterable[Collector] | None) -> None:
        """Take the function that returns a snapshot, and the collector's own metrics; None: they are not shown."""
        # They would double the number of counters.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._registry.register(SnapshotCollector(snapshot))
        if others is not None:
            ProcessCollector(registry=self._registry)
            for collector in others:
                self._registry.register(collector)

    def answer(self, _query: Query) -> Response:
        """Return them in Prometheus' text format."""
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, "Content-Security-Policy": NO_CONTENT}
        return Response(generate_latest(self._registry), headers=headers)


class SnapshotCollector(Collector):
    """The metrics of a snapshot. Without one there are none but its failure: an old figure would be wrong."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        yield InfoMetricFamily("gpuagent_collector", "Version of the collector.", {"version": __version__})
        started = time.monotonic()
        try:
            snapshot: Snapshot | None = self._snapshot()
        except GpuAgentError as error:
            _LOG.warning("the latest samples cannot be read for /metrics: %s", error)
            snapshot = None
        yield _gauge(
            "snapshot_success", "1 if the latest samples could be read from the store, else 0", snapshot is not None
        )
        yield _gauge(
            "snapshot_seconds",
            "Time that reading them took, or waiting for another request",
            time.monotonic() - started,
        )
        if snapshot is not None:
            # The UUID, because two nodes may have one hostname, and Prometheus wants each series once.
            nodes: list[Labelled] = [
                ([_label(node.hostname), _label(node.platform), _label(node.node_uuid)], node)
                for node in snapshot.nodes
            ]
            gpus: list[Labelled] = [
                ([*labels, *[_label(gpu.place), _label(gpu.uuid), _label(gpu.name)]], gpu)
                for (labels, _), node in zip(nodes, snapshot.nodes, strict=True)
                for gpu in node.gpus
            ]
            for series in NODE_SERIES:
                yield _family(series, _NODE_LABELS, nodes)
            for series in GPU_SERIES:
                yield _family(series, _GPU_LABELS, gpus)
            family = GaugeMetricFamily("gpuagent_runs", "Runs that are queued or running.", labels=_RUN_LABELS)
            counted = Counter((run.platform, run.workload, run.status) for run in snapshot.runs if run.is_open)
            for labels, number in counted.items():
                family.add_metric([_label(each) for each in labels], number)
            yield family


def _family(series: Series, labels: Sequence[str], things: Iterable[Labelled]) -> Metric:
    kind = CounterMetricFamily if series.is_counter else GaugeMetricFamily
    family = kind(f"gpuagent_{series.name}", f"{series.help}.", labels=labels)
    for values, thing in things:
        figure = getattr(thing, series.attribute)
        if figure is not None:
            family.add_metric(values, series.convert(figure))
    return family


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gpuagent_{name}", f"{help_text}.", value=value)


def _label(value: object) -> str:
    """Return a label's value; Prometheus takes an empty one for none."""
    return "" if value is None else harmless(str(value))
