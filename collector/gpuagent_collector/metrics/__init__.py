"""The figures of a run, with the SQL that computes each from the run's rows.

A run's rows are those of its nodes, its GPUs and its measured window, never an idle neighbour's. Each figure is taken
first from every part of the run (a node, a GPU, a rank) and then over the parts, so that a node that samples more often
does not weigh more. A figure without readings is absent.
"""

from collections.abc import Iterable
from typing import TypeVar

from gpuagent_collector.metrics.hardware import (
    ENERGY_METRICS,
    GPU_METRICS,
    HEALTH_METRICS,
    HOST_METRICS,
    SHARING_METRICS,
)
from gpuagent_collector.metrics.metric import ITEMS, STEPS, Better, Metric, StoredMetric, further, hint_at
from gpuagent_collector.metrics.result import (
    IMAGE_METRICS,
    RECOVERY_METRICS,
    RESULT_METRICS,
    SERVING_METRICS,
    WORK_METRICS,
)
from gpuagent_collector.metrics.run import EFFICIENCY_METRICS, RUN_METRICS, STEADINESS_METRICS, TRACE_METRICS

__all__ = [
    "BY_NAME",
    "GROUPS",
    "ITEMS",
    "METRICS",
    "STEPS",
    "Better",
    "Metric",
    "StoredMetric",
    "by_group",
    "further",
    "hint_at",
]

_AnyMetric = TypeVar("_AnyMetric", bound=Metric)


# Every group, in the order in which they are shown.
GROUPS = (
    "Throughput",
    "Serving",
    "Time",
    "GPU",
    "CPU",
    "Memory",
    "Energy",
    "Cost",
    "Steadiness",
    "Work",
    "Recovery",
    "Result",
    "Image",
)


def by_group(metrics: Iterable[_AnyMetric]) -> tuple[_AnyMetric, ...]:
    """Return the metrics in the order of their groups."""
    return tuple(sorted(metrics, key=lambda metric: GROUPS.index(metric.group)))


# Every metric, in the order in which they are shown.
METRICS: tuple[StoredMetric, ...] = by_group(
    (
        *RUN_METRICS,
        *SERVING_METRICS,
        *TRACE_METRICS,
        *EFFICIENCY_METRICS,
        *STEADINESS_METRICS,
        *HOST_METRICS,
        *GPU_METRICS,
        *SHARING_METRICS,
        *HEALTH_METRICS,
        *ENERGY_METRICS,
        *WORK_METRICS,
        *RESULT_METRICS,
        *RECOVERY_METRICS,
        *IMAGE_METRICS,
    )
)

BY_NAME: dict[str, StoredMetric] = {metric.name: metric for metric in METRICS}
