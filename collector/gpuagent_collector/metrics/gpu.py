"""What a run took of its GPUs, and how well it used them."""

from gpuagent_collector.metric_sources import ENERGY, GPU_PROCESSES, GPUS, RUN_GPUS
from gpuagent_collector.metrics.metric import Better, Metric, reported

# NVML's clock event reasons that hold clocks back: power cap 4, hardware slowdown 8, software thermal 32, hardware
# thermal 64, power brake 128. Idle, fixed application clocks, sync boost and display clocks are not throttling.
_THROTTLING_BITS = 4 | 8 | 32 | 64 | 128


def _gpu(name: str, title: str, unit: str, reading: str, *, better: Better | None = None) -> Metric:
    """Return the metric that is the mean of `reading` in time and over the run's GPUs."""
    return Metric(
        name=name,
        title=title,
        unit=unit,
        group="GPU",
        better=better,
        source=GPUS,
        reading=reading,
        in_part="avg({})",
        over_parts="avg",
    )


def _gpu_peak(name: str, title: str, unit: str, reading: str) -> Metric:
    """Return the metric that is the highest `reading` of any of the run's GPUs."""
    return Metric(
        name=name,
        title=title,
        unit=unit,
        group="GPU",
        better=Better.LOWER,
        source=GPUS,
        reading=reading,
        in_part="max({})",
        over_parts="max",
    )


GPU_METRICS: tuple[Metric, ...] = (
    Metric(
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
    _gpu("gpu_utilization_percent", "GPU utilisation", "percent", "utilization_percent"),
    _gpu(
        "gpu_idle_percent",
        "GPU idle time",
        "percent",
        "100.0 * CAST(utilization_percent = 0 AS INTEGER)",
        better=Better.LOWER,
    ),
    _gpu("sm_active_percent", "SMs active", "percent", "sm_active_percent"),
    _gpu("tensor_active_percent", "Tensor pipes active", "percent", "tensor_active_percent"),
    _gpu("dram_active_percent", "Device memory bandwidth", "percent", "dram_active_percent"),
    # From the steps that the workload traced after its measured ones.
    reported("gpu_busy_percent", "GPU busy, of a step", "percent", "avg", result="gpu_busy_share", group="GPU"),
    reported("kernels_per_step", "Kernels a step", "", "avg", group="GPU"),
    reported(
        "sm_efficiency_estimated_percent",
        "SM efficiency, estimated",
        "percent",
        "avg",
        result="sm_efficiency_estimated",
        group="GPU",
    ),
    reported(
        "occupancy_estimated_percent",
        "Occupancy, estimated",
        "percent",
        "avg",
        result="occupancy_estimated",
        group="GPU",
    ),
    _gpu_peak("gpu_memory_used_bytes", "GPU memory, peak", "bytes", "memory_used_bytes"),
    _gpu_peak(
        "gpu_memory_used_percent", "GPU memory, peak share", "percent", "100.0 * memory_used_bytes / memory_total_bytes"
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
    ),
    _gpu("gpu_power_watts", "Power, each GPU", "watts", "power_watts", better=Better.LOWER),
    Metric(
        name="gpu_energy_joules",
        title="Energy of its GPUs",
        unit="joules",
        group="GPU",
        # Of a measured phase of fixed length, less may only mean less work.
        better=None,
        source=ENERGY,
        reading="energy_joules",
        in_part="sum({})",
        over_parts="sum",
    ),
    _gpu("gpu_temperature_celsius", "GPU temperature", "celsius", "temperature_celsius", better=Better.LOWER),
    _gpu("sm_clock_mhz", "SM clock", "megahertz", "sm_clock_mhz"),
    _gpu(
        "gpu_throttled_percent",
        "GPU throttled time",
        "percent",
        f"100.0 * CAST(throttle_reasons & {_THROTTLING_BITS} != 0 AS INTEGER)",
        better=Better.LOWER,
    ),
    Metric(
        name="gpu_other_processes",
        title="Other processes on the GPU",
        unit="",
        group="GPU",
        better=Better.LOWER,
        source=GPU_PROCESSES,
        reading="other_pid",
        in_part="count(DISTINCT {})",
        over_parts="max",
    ),
)
