"""Definitions of the metrics in words, made of what computes them."""

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
