"""`/metrics`: the latest samples and the state of ingest, as Prometheus reads them."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from gpuagent_collector import __version__
from gpuagent_collector.watch.snapshot import GpuNow, NodeNow, RunNow, Snapshot
from gpuagent_collector.web.answers import NO_CONTENT, Query
from gpuagent_collector.web.series import GPU_SERIES, NODE_SERIES, Series
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless

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
            yield from _families(snapshot)


def _families(snapshot: Snapshot) -> Iterator[Metric]:
    nodes: list[Labelled] = [(_labels_of(node), node) for node in snapshot.nodes]
    gpus: list[Labelled] = [
        ([*labels, *_labels_of_gpu(gpu)], gpu)
        for (labels, _), node in zip(nodes, snapshot.nodes, strict=True)
        for gpu in node.gpus
    ]
    for series in NODE_SERIES:
        yield _family(series, _NODE_LABELS, nodes)
    for series in GPU_SERIES:
        yield _family(series, _GPU_LABELS, gpus)
    yield _runs(snapshot.runs)


def _family(series: Series, labels: Sequence[str], things: Iterable[Labelled]) -> Metric:
    kind = CounterMetricFamily if series.is_counter else GaugeMetricFamily
    family = kind(f"gpuagent_{series.name}", f"{series.help}.", labels=labels)
    for values, thing in things:
        figure = getattr(thing, series.attribute)
        if figure is not None:
            family.add_metric(values, series.convert(figure))
    return family


def _runs(runs: Iterable[RunNow]) -> Metric:
    family = GaugeMetricFamily("gpuagent_runs", "Runs that are queued or running.", labels=_RUN_LABELS)
    counted = Counter((run.platform, run.workload, run.status) for run in runs if run.is_open)
    for labels, number in counted.items():
        family.add_metric([_label(each) for each in labels], number)
    return family


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gpuagent_{name}", f"{help_text}.", value=value)


def _labels_of(node: NodeNow) -> list[str]:
    # The UUID, because two nodes may have one hostname, and Prometheus wants each series once.
    return [_label(node.hostname), _label(node.platform), _label(node.node_uuid)]


def _labels_of_gpu(gpu: GpuNow) -> list[str]:
    return [_label(gpu.place), _label(gpu.uuid), _label(gpu.name)]


def _label(value: object) -> str:
    """Return a label's value; Prometheus takes an empty one for none."""
    return "" if value is None else harmless(str(value))
