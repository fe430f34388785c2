"""Use of a run's GPUs by others, and idle time while the run held them.

Others are processes that are not the run's, of another run or of unknown origin. Where the agent cannot see all
processes on a GPU, such as in a PID namespace, these figures are absent.
"""

from gpuagent_collector.metrics.metric import Better, StoredMetric
from gpuagent_collector.metrics.metric_sources import GPU_HOLDERS, HELD_GPUS


def _of_others(name: str, title: str, unit: str, reading: str, aggregate: str) -> StoredMetric:
    """Return the metric that takes `aggregate` of `reading` over time, and then over the run's GPUs."""
    return StoredMetric(
        name=name,
        title=title,
        unit=unit,
        group="GPU",
        better=Better.LOWER,
        source=GPU_HOLDERS,
        reading=reading,
        in_part=f"{aggregate}({{}})",
        over_parts=aggregate,
        detail=True,
    )


SHARING_METRICS: tuple[StoredMetric, ...] = (
    _of_others("gpu_other_processes", "Other processes on the GPU", "", "other_processes", "max"),
    _of_others("gpu_other_memory_bytes", "GPU memory of others, peak", "bytes", "other_memory_bytes", "max"),
    _of_others(
        "gpu_other_utilization_percent", "GPU utilisation by others", "percent", "other_utilization_percent", "avg"
    ),
    # gpu_idle_percent is of the measured phase; this is of all the time in which nobody else could have the GPU.
    StoredMetric(
        name="gpu_held_idle_percent",
        title="GPU held but idle, whole run",
        unit="percent",
        group="GPU",
        better=Better.LOWER,
        source=HELD_GPUS,
        reading="100.0 * CAST(utilization_percent = 0 AS INTEGER)",
        in_part="avg({})",
        over_parts="avg",
        detail=True,
    ),
)
