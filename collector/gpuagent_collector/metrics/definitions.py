"""Definitions of the metrics, and of what is measured, for people."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuagent_collector.metrics import METRICS, StoredMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDoc:
    """One metric: its unit ('' is a plain number), title, definition, and the tables that it is computed from."""

    metric: str
    unit: str
    title: str
    better: str | None
    definition: str
    source: str


_OVER_PARTS = {"avg": "mean over", "sum": "sum over", "max": "highest of", "min": "lowest of"}


def define() -> tuple[MetricDoc, ...]:
    """Return every stored metric, in the order in which they are shown."""
    return tuple(
        MetricDoc(
            metric=metric.name,
            unit=metric.unit,
            title=metric.title,
            better=metric.better.value if metric.better else None,
            definition=_definition(metric),
            source=metric.source.tables,
        )
        for metric in METRICS
    )


def _definition(metric: StoredMetric) -> str:
    """Return the aggregate of the reading in each part, and that over the parts."""
    if metric.result:
        return (
            f"the result {metric.result} as each rank reported it last; "
            f"{_OVER_PARTS[metric.over_parts]} the run's ranks"
        )
    in_part = metric.in_part.format(" ".join(metric.reading.split()))
    if metric.source.part_kind is None:
        return in_part
    return f"{in_part}; {_OVER_PARTS[metric.over_parts]} the run's {metric.source.part_kind.value}s"


_BYTES = "bytes/s"

# Name → unit, title, definition. OPERATION is all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv;
# N the bytes of a message; I and J two ranks.
_COLLECTIVES = {
    "OPERATION_N_bytes_seconds": (
        "seconds",
        "Time of a collective",
        "of rounds of calls in a row the mean over calls and ranks, of the rounds the median; with torch's overhead",
    ),
    "OPERATION_N_bytes_algorithm_bytes_per_second": (
        _BYTES,
        "Algorithm bandwidth",
        "size / time; the size is that of the larger of a rank's two buffers",
    ),
    "OPERATION_N_bytes_bus_bytes_per_second": (
        _BYTES,
        "Bus bandwidth",
        "algorithm bandwidth × 2 (n − 1) / n of n ranks (all_reduce), (n − 1) / n (all_gather, reduce_scatter, "
        "all_to_all) or 1 (broadcast, send_recv), as nccl-tests' PERFORMANCE.md defines it",
    ),
    "pair_I_J_N_bytes_bus_bytes_per_second": (
        _BYTES,
        "Bus bandwidth of a pair",
        "size / time of an exchange of ranks I and J, in each direction, while all others are idle",
    ),
    "pairs_N_bytes_bus_bytes_per_second": (
        _BYTES,
        "Bus bandwidth of a rank's pairs",
        "of each rank, the median over its pairs",
    ),
}


def define_measured() -> Iterator[MetricDoc]:
    """Yield every such result, in the order of the reports."""
    for name, (unit, title, definition) in _COLLECTIVES.items():
        better = "lower" if unit == "seconds" else "higher"
        source = "results of the workload collectives"
        yield MetricDoc(metric=name, unit=unit, title=title, better=better, definition=definition, source=source)
