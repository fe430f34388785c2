"""`/metrics`: the latest samples and the state of ingest, as Prometheus reads them."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from gpuagent_collector import __version__
from gpuagent_collector.watch.snapshot import GpuNow, NodeNow, Snapshot
from gpuagent_collector.web.layout import NO_CONTENT, Query
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.quantities import QUANTITIES
from gpuagent_common.text import harmless


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A metric with one value for each node or GPU.

    Attributes:
        name: without the prefix `gpuagent_`; a counter's without `_total`.
        attribute: of NodeNow or GpuNow, or of their figures; None is no value.
        convert: converts from the store's unit to the metric's.
        is_counter: True if it only grows, until the driver is loaded again.
    """

    name: str
    attribute: str
    help: str
    convert: Callable[[float], float] = float
    is_counter: bool = False


def _series(name: str, attribute: str, help_text: str) -> Series:
    return Series(name=name, attribute=attribute, help=help_text)


# Unit in the store → the ending of its columns, Prometheus' ending, and the conversion.
_CONVERTED: Mapping[str, tuple[str, str, Callable[[float], float]]] = {
    "percent": ("_percent", "_ratio", lambda percent: percent / 100),
    "megahertz": ("_mhz", "_hertz", lambda megahertz: megahertz * 1e6),
}


def _sampled(table: str, prefix: str) -> Iterator[Series]:
    for quantity in QUANTITIES[table]:
        if quantity.series:
            ending, ours, convert = _CONVERTED.get(quantity.unit, ("", "", float))
            yield Series(
                name=prefix + (quantity.series_name or quantity.column.removesuffix(ending) + ours),
                attribute=quantity.column,
                help=quantity.series,
                convert=convert,
                is_counter=quantity.unit == "joules",
            )


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
    *_sampled("host_samples", "node_"),
)

GPU_SERIES: tuple[Series, ...] = (
    *_sampled("gpu_samples", "gpu_"),
    _series("gpu_memory_size_bytes", "memory_total_bytes", "Device memory"),
    _series("gpu_power_limit_watts", "power_limit_watts", "Enforced power limit"),
    _series("gpu_held_back", "is_held_back", "1 if heat, power or hardware hold its clocks back, else 0"),
)


_LOG = logging.getLogger(__name__)

_NODE_LABELS = ("node", "platform", "node_uuid")
_GPU_LABELS = (*_NODE_LABELS, "gpu", "uuid", "name")
_IDLE_LABELS = (*_NODE_LABELS, "uuid", "kind", "job", "user")
_RUN_LABELS = ("platform", "workload", "status")

Labelled = tuple[Sequence[str], NodeNow | GpuNow]


class Metrics:
    """The metrics of one registry."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        others: Iterable[Collector] | None,
        *,
        find_idle: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
    ) -> None:
        """Take the functions that return a snapshot and the rows of IDLE_SQL, and the collector's own metrics.

        Without others (None) these are not shown.
        """
        # They would double the number of counters.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._registry.register(SnapshotCollector(snapshot))
        self._registry.register(IdleCollector(find_idle))
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
        words = "1 if the latest samples could be read from the store, else 0."
        yield GaugeMetricFamily("gpuagent_snapshot_success", words, value=snapshot is not None)
        words = "Time that reading them took, or waiting for another request."
        yield GaugeMetricFamily("gpuagent_snapshot_seconds", words, value=time.monotonic() - started)
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


# What jobs hold now without using it, by GPU. An agent that is silent for a minute reports nothing.
IDLE_SQL = """
WITH last AS (
    SELECT node_id, owner_id, device_id, arg_max(idle_now_seconds, time) AS idle_seconds FROM owner_samples
    WHERE time >= (SELECT max(time) FROM owner_samples) - INTERVAL 1 MINUTE AND device_id IS NOT NULL
    GROUP BY node_id, owner_id, device_id
), named AS (
    SELECT owner_id, any_value(kind) AS kind, arg_max(job, time) AS job, arg_max(user_name, time) AS user_name
    FROM owners WHERE owner_id IN (SELECT owner_id FROM last) GROUP BY owner_id
    HAVING arg_max({'at': ended_at}, time).at IS NULL
)
SELECT hostname, platform, node_uuid, uuid, kind, job, user_name, idle_seconds
FROM last JOIN named USING (owner_id) JOIN nodes USING (node_id) JOIN devices ON devices.device_id = last.device_id
WHERE idle_seconds > 0
"""


class IdleCollector(Collector):
    """The metric of GPUs that are held and idle."""

    def __init__(self, find_idle: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._find_idle = find_idle

    def collect(self) -> Iterator[Metric]:
        """Yield the family; without a reading there is none."""
        try:
            rows = self._find_idle()
        except GpuAgentError as error:
            _LOG.warning("idle GPUs cannot be read for /metrics: %s", error)
            return
        words = "Time for which a job has held the GPU without a kernel, from 15 minutes on; docs/jobs.md defines it."
        family = GaugeMetricFamily("gpuagent_gpu_held_idle_seconds", words, labels=_IDLE_LABELS)
        for row in rows:
            names = ("hostname", "platform", "node_uuid", "uuid", "kind", "job", "user_name")
            family.add_metric([_label(row[name]) for name in names], row["idle_seconds"])
        yield family


def _family(series: Series, labels: Sequence[str], things: Iterable[Labelled]) -> Metric:
    kind = CounterMetricFamily if series.is_counter else GaugeMetricFamily
    family = kind(f"gpuagent_{series.name}", f"{series.help}.", labels=labels)
    for values, thing in things:
        figure = thing.figures.get(series.attribute)
        if series.attribute not in thing.figures:
            figure = getattr(thing, series.attribute)
        if figure is not None:
            family.add_metric(values, series.convert(figure))
    return family


def _label(value: object) -> str:
    """Return a label's value; Prometheus takes an empty one for none."""
    return "" if value is None else harmless(str(value))
