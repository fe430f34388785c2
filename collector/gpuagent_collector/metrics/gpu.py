"""The use of a run's GPUs."""

from dataclasses import replace

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported
from gpuagent_collector.metrics.metric_sources import GPUS, RUN_GPUS


def _gpu(
    name: str, title: str, unit: str, reading: str, *, better: Better | None = None, detail: bool = False
) -> StoredMetric:
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
        detail=detail,
    )


def gpu_share(name: str, title: str, condition: str) -> StoredMetric:
    """Return the metric that is the share of time in which `condition` held, mean over the run's GPUs."""
    reading = f"100.0 * CAST({condition} AS INTEGER)"
    # The maximum of a condition is of no interest.
    return replace(_gpu(name, title, "percent", reading, better=Better.LOWER), quantity=None)


def _gpu_peak(name: str, quantity: str, unit: str, reading: str) -> StoredMetric:
    """Return the metric that is the highest `reading` of any of the run's GPUs."""
    return StoredMetric(
        name=name,
        title=f"{quantity}, peak",
        quantity=quantity,
        unit=unit,
        group="GPU",
        better=Better.LOWER,
        source=GPUS,
        reading=reading,
        in_part="max({})",
        over_parts="max",
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
    _gpu("gpu_utilization_percent", "GPU utilisation", "percent", "utilization_percent"),
    gpu_share("gpu_idle_percent", "GPU idle time", "utilization_percent = 0"),
    _gpu("sm_active_percent", "SMs active", "percent", "sm_active_percent"),
    _gpu("tensor_active_percent", "Tensor pipes active", "percent", "tensor_active_percent"),
    _gpu("fp32_active_percent", "FP32 pipes active", "percent", "fp32_active_percent", detail=True),
    _gpu("dram_active_percent", "Device memory bandwidth", "percent", "dram_active_percent"),
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
    _gpu_peak("gpu_memory_used_bytes", "GPU memory", "bytes", "memory_used_bytes"),
    _gpu_peak(
        "gpu_memory_used_percent", "GPU memory, share", "percent", "100.0 * memory_used_bytes / memory_total_bytes"
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
    _gpu("gpu_power_watts", "Power, each GPU", "watts", "power_watts", better=Better.LOWER),
    _gpu("gpu_temperature_celsius", "GPU temperature", "celsius", "temperature_celsius", better=Better.LOWER),
    _gpu("sm_clock_mhz", "SM clock", "megahertz", "sm_clock_mhz"),
)
