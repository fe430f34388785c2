"""The use of a run's GPUs, by the run and by others, their health and their energy.

Others are processes that are not the run's, of another run or of unknown origin. Where the agent cannot see all
processes on a GPU, such as in a PID namespace, their figures are absent. The view `energy` has the energy of each GPU,
phase and step, with its method.
"""

from dataclasses import replace

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported, sampled
from gpuagent_collector.metrics.metric_sources import (
    ENERGY,
    GPU_HOLDERS,
    GPUS,
    HEALTH,
    HELD_GPUS,
    RUN_GPUS,
    STEP_ENERGY,
    Source,
)
from gpuagent_collector.metrics.throttling import HARDWARE, HARDWARE_THERMAL, HOLDING, POWER_BRAKE, POWER_CAP, THERMAL


def _gpu(name: str, title: str, unit: str, reading: str, better: Better | None = None) -> StoredMetric:
    """Return the metric that is the mean of `reading` in time and over the run's GPUs."""
    return StoredMetric(
        name=name,
        title=title,
        quantity=title,
        unit=unit,
        group="GPU",
        better=better,
        source=GPUS,
        reading=reading,
        in_part="avg({})",
        over_parts="avg",
    )


def gpu_share(name: str, title: str, condition: str) -> StoredMetric:
    """Return the metric that is the share of time in which `condition` held, mean over the run's GPUs."""
    reading = f"100.0 * CAST({condition} AS INTEGER)"
    # The maximum of a condition is of no interest.
    return replace(_gpu(name, title, "percent", reading, Better.LOWER), quantity=None)


def _at_start(name: str, title: str, unit: str, reading: str, over_parts: str) -> StoredMetric:
    """Return the metric that is the first `reading` of the measured phase, of the warmest or slowest GPU."""
    return StoredMetric(
        name=name,
        title=title,
        unit=unit,
        group="GPU",
        better=None,
        source=GPUS,
        reading=reading,
        in_part="arg_min({}, time)",
        over_parts=over_parts,
        detail=True,
    )


GPU_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="gpus",
        title="GPUs used",
        unit="",
        group="GPU",
        better=None,
        source=RUN_GPUS,
        reading="device_id",
        in_part="count(DISTINCT {})",
        over_parts="sum",
    ),
    *sampled(
        "gpu_samples",
        utilization_percent=[gpu_share("gpu_idle_percent", "GPU idle time", "utilization_percent = 0")],
        dram_active_percent=[
            # Of the peak in the maker's data sheet, as the workload reports it for known GPUs.
            _gpu(
                "dram_sampled_bytes_per_second",
                "Device memory traffic, sampled",
                "bytes/s",
                "dram_active_percent / 100 * dram_peak_bytes_per_second",
            ),
            # From the steps that the workload traced after its measured ones.
            reported("gpu_busy_percent", "GPU busy, of a step", "percent", "avg", result="gpu_busy_share", group="GPU"),
            reported("kernels_per_step", "Kernels a step", "", "avg", group="GPU", detail=True),
            reported(
                "sm_efficiency_estimated_percent",
                "SM efficiency, estimated",
                "percent",
                "avg",
                result="sm_efficiency_estimated",
                group="GPU",
                detail=True,
            ),
            reported(
                "occupancy_estimated_percent",
                "Occupancy, estimated",
                "percent",
                "avg",
                result="occupancy_estimated",
                group="GPU",
                detail=True,
            ),
        ],
        memory_used_bytes=[
            StoredMetric(
                name="gpu_memory_used_percent",
                title="GPU memory, share, peak",
                quantity="GPU memory, share",
                unit="percent",
                group="GPU",
                better=Better.LOWER,
                source=GPUS,
                reading="100.0 * memory_used_bytes / memory_total_bytes",
                in_part="max({})",
                over_parts="max",
            ),
            reported(
                "gpu_memory_allocated_bytes",
                "Allocated by the framework",
                "bytes",
                "max",
                Better.LOWER,
                result="peak_memory_allocated",
                group="GPU",
            ),
            reported(
                "gpu_memory_reserved_bytes",
                "Reserved by the framework",
                "bytes",
                "max",
                Better.LOWER,
                result="peak_memory_reserved",
                group="GPU",
                detail=True,
            ),
        ],
    ),
    _at_start("gpu_temperature_start_celsius", "GPU temperature, start", "celsius", "temperature_celsius", "max"),
    _at_start("sm_clock_start_mhz", "SM clock, start", "megahertz", "sm_clock_mhz", "min"),
)


def _holders_metric(name: str, title: str, unit: str, reading: str, aggregate: str) -> StoredMetric:
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
    _holders_metric("gpu_other_processes", "Other processes on the GPU", "", "other_processes", "max"),
    _holders_metric("gpu_other_memory_bytes", "GPU memory of others, peak", "bytes", "other_memory_bytes", "max"),
    _holders_metric(
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


def _energy(name: str, title: str, reading: str, better: Better | None = None) -> StoredMetric:
    """Return the metric that is an energy of all the run's GPUs together."""
    return StoredMetric(
        name=name,
        title=title,
        unit="joules",
        group="Energy",
        better=better,
        source=ENERGY,
        reading=reading,
        in_part="sum({})",
        over_parts="sum",
    )


ENERGY_METRICS: tuple[StoredMetric, ...] = (
    # Of a measured phase of fixed length, less may only mean less work.
    _energy("gpu_energy_joules", "GPUs' energy", "counted_joules"),
    _energy("gpu_energy_per_item_joules", "GPUs' energy an item", "counted_joules / nullif(items, 0)", Better.LOWER),
    StoredMetric(
        name="gpu_energy_per_step_joules",
        title="GPUs' energy a step",
        unit="joules",
        group="Energy",
        better=Better.LOWER,
        source=STEP_ENERGY,
        reading="energy_joules",
        in_part="median({})",
        over_parts="sum",
    ),
    _energy("gpu_energy_run_joules", "GPUs' energy, whole run", "run_joules"),
)
