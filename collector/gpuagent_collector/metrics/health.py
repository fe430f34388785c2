"""Throttling and signs of wear of a run's GPUs, for warnings."""

from dataclasses import replace

from gpuagent_collector.metrics.gpu import gpu_share
from gpuagent_collector.metrics.metric import Better, StoredMetric
from gpuagent_collector.metrics.metric_sources import GPUS, HEALTH, Source
from gpuagent_collector.metrics.throttling import HARDWARE, HARDWARE_THERMAL, HOLDING, POWER_BRAKE, POWER_CAP, THERMAL

# Clocks of a GPU that has little to do may rest.
_BUSY = "utilization_percent >= 50"

_NEAR_MAXIMUM = 0.95


def _held_by(name: str, title: str, condition: str) -> StoredMetric:
    """Return the metric that is the share of time in which one cause throttled clocks."""
    return replace(gpu_share(name, title, condition), detail=True)


def _sign(name: str, title: str, source: Source, reading: str, in_part: str, over_parts: str) -> StoredMetric:
    """Return a metric that warrants a check when it is above 0."""
    return StoredMetric(
        name=name,
        title=title,
        unit="",
        group="GPU",
        better=Better.LOWER,
        source=source,
        reading=reading,
        in_part=in_part,
        over_parts=over_parts,
        detail=True,
    )


HEALTH_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="sm_clock_busy_percent",
        title="SM clock while busy, share",
        unit="percent",
        group="GPU",
        better=None,
        source=GPUS,
        reading=f"CASE WHEN {_BUSY} THEN 100.0 * sm_clock_mhz / sm_clock_max_mhz END",
        in_part="median({})",
        over_parts="min",
    ),
    gpu_share("gpu_throttled_percent", "GPU throttled time", f"throttle_reasons & {HOLDING} <> 0"),
    _held_by("gpu_power_capped_percent", "GPU held back by power cap", f"throttle_reasons & {POWER_CAP} <> 0"),
    _held_by("gpu_thermal_slowdown_percent", "GPU held back by heat", f"throttle_reasons & {THERMAL} <> 0"),
    _held_by("gpu_power_brake_percent", "GPU held back by power brake", f"throttle_reasons & {POWER_BRAKE} <> 0"),
    _held_by(
        "gpu_hardware_slowdown_percent",
        "GPU held back by hardware, cause unknown",
        f"throttle_reasons & {HARDWARE | HARDWARE_THERMAL | POWER_BRAKE} = {HARDWARE}",
    ),
    _held_by(
        "gpu_clock_unexplained_percent",
        "Busy time below 95 % of the SM clock, unexplained",
        f"CASE WHEN {_BUSY} THEN sm_clock_mhz < {_NEAR_MAXIMUM} * sm_clock_max_mhz "
        f"AND throttle_reasons & {HOLDING} = 0 END",
    ),
    _sign(
        "gpu_ecc_errors_uncorrected",
        "Uncorrected memory errors",
        GPUS,
        "ecc_errors_uncorrected",
        "max({0}) - min({0})",
        "sum",
    ),
    _sign("gpu_memory_repair_pending", "GPUs with memory to repair", HEALTH, "memory_repair_pending", "max({})", "sum"),
    _sign("gpu_memory_repair_failed", "GPUs beyond repair", HEALTH, "memory_repair_failed", "max({})", "sum"),
)
