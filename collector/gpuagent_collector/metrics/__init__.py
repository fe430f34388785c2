"""The figures of a run: what each is, and how it is computed from the run's rows.

A run's rows are those of its nodes, its GPUs and its measured window, never an idle neighbour's. Each figure is taken
first from every part of the run (a node, a GPU, a rank) and then over the parts, so that a node that samples more often
does not weigh more. A figure without readings is absent.
"""

from gpuagent_collector.metrics.gpu import GPU_METRICS
from gpuagent_collector.metrics.host import HOST_METRICS
from gpuagent_collector.metrics.metric import Better, Metric
from gpuagent_collector.metrics.result import RESULT_METRICS
from gpuagent_collector.metrics.run import RUN_METRICS

__all__ = ["BY_NAME", "METRICS", "Better", "Metric"]

METRICS: tuple[Metric, ...] = (*RUN_METRICS, *HOST_METRICS, *GPU_METRICS, *RESULT_METRICS)
"""Every metric, in the order in which they are shown."""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
