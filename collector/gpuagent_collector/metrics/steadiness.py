"""The evenness of a run: mean and median do not show stalls."""

from gpuagent_collector.metrics.metric import Better, StoredMetric
from gpuagent_collector.metrics.metric_sources import GPUS, MEASURED_STEPS

# Of the least steady rank or GPU. Percentiles of utilisation are in points, over its samples.
STEADINESS_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="step_p95_over_p50",
        title="Step, p95 by median",
        unit="",
        group="Steadiness",
        better=Better.LOWER,
        source=MEASURED_STEPS,
        # On a GPU the wall time of a step is that of its launch, which runs ahead of the GPU in bursts.
        reading="coalesce(gpu_seconds, wall_seconds)",
        in_part="approx_quantile({0}, 0.95) / approx_quantile({0}, 0.5)",
        over_parts="max",
    ),
    StoredMetric(
        name="gpu_utilization_spread_percent",
        title="GPU utilisation, p90 − p10",
        unit="percent",
        group="Steadiness",
        better=Better.LOWER,
        source=GPUS,
        reading="utilization_percent",
        in_part="approx_quantile({0}, 0.9) - approx_quantile({0}, 0.1)",
        over_parts="max",
    ),
)
