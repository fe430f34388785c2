"""The figures of a run: what each is, and how it is computed from the run's rows.

A run's rows are those of its nodes, its GPUs and its measured window, never an idle neighbour's. Each figure is taken
first from every part of the run (a node, a GPU, a rank) and then over the parts, so that a node that samples more often
does not weigh more. A figure without readings is absent.
"""

from dataclasses import dataclass
from enum import Enum

from gpuagent_collector.metric_sources import (
    FIRST_STEPS,
    GPU_PROCESSES,
    GPUS,
    HOST,
    LIFE,
    MEASURED_STEPS,
    PROCESSES,
    RESULTS,
    RUN_GPUS,
    Source,
)


class Better(Enum):
    """Which direction of a metric is the better one."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a run.

    Attributes:
        name: what `--metric` and the table run_metrics call it; its unit is in the name or in `unit`.
        title: what people read.
        unit: as stored; '' is a plain number.
        group: under which heading it is shown.
        better: which direction is the better one; None: neither is, or it depends.
        source: where its readings come from.
        reading: SQL expression of one reading; NULL is no reading.
        in_part: SQL aggregate that makes one figure of a part's readings, with {} for the reading.
        over_parts: name of the SQL aggregate over the parts' figures.
    """

    name: str
    title: str
    unit: str
    group: str
    better: Better | None
    source: Source
    reading: str
    in_part: str
    over_parts: str


def _result(
    name: str,
    title: str,
    unit: str,
    over_parts: str,
    better: Better | None = None,
    *,
    result: str | None = None,
    value: str = "value",
    group: str = "Result",
) -> Metric:
    """Return the metric of the result that each rank reported last, in whatever phase.

    `result` is its name in the table, None: the metric's own; `value` is SQL of its value.
    """
    return Metric(
        name=name,
        title=title,
        unit=unit,
        group=group,
        better=better,
        source=RESULTS,
        reading=f"CASE WHEN name = '{result or name}' THEN {value} END",
        in_part="arg_max({}, time)",
        over_parts=over_parts,
    )


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


def _process_peak(name: str, title: str, reading: str) -> Metric:
    """Return the metric that is the sum over nodes of the highest `reading` of the run's process tree."""
    return Metric(
        name=name,
        title=title,
        unit="bytes",
        group="Memory",
        better=Better.LOWER,
        source=PROCESSES,
        reading=reading,
        in_part="max({})",
        over_parts="sum",
    )


def _time(name: str, title: str, source: Source, reading: str, in_part: str, over_parts: str) -> Metric:
    """Return a metric in seconds, of which less is better."""
    return Metric(
        name=name,
        title=title,
        unit="seconds",
        group="Time",
        better=Better.LOWER,
        source=source,
        reading=reading,
        in_part=in_part,
        over_parts=over_parts,
    )


def _host(name: str, title: str, unit: str, group: str, reading: str, *, over_parts: str = "avg") -> Metric:
    """Return the metric that is the mean of `reading` in time on each node."""
    return Metric(
        name=name,
        title=title,
        unit=unit,
        group=group,
        better=None,
        source=HOST,
        reading=reading,
        in_part="avg({})",
        over_parts=over_parts,
    )


# NVML's clock event reasons that hold clocks back: power cap 4, hardware slowdown 8, software thermal 32, hardware
# thermal 64, power brake 128. Idle, fixed application clocks, sync boost and display clocks are not throttling.
_THROTTLING_BITS = 4 | 8 | 32 | 64 | 128

_IN_PERCENT = "value * CASE WHEN unit IS NULL THEN 100 ELSE 1 END"
"""A result that is reported in percent, or without unit as a share of 1."""

METRICS: tuple[Metric, ...] = (
    Metric(
        name="throughput",
        title="Throughput",
        unit="items/s",
        group="Throughput",
        better=Better.HIGHER,
        source=RESULTS,
        reading="CASE WHEN name = 'throughput' AND phase = 'measure' THEN value END",
        in_part="arg_max({}, time)",
        over_parts="sum",
    ),
    _time("step_seconds", "Step, median", MEASURED_STEPS, "wall_seconds", "median({})", "max"),
    _time("run_seconds", "Run, whole", LIFE, "epoch(ended_at - started_at)", "max({})", "max"),
    _time("measure_seconds", "Measured phase", LIFE, "epoch(measure_to - measure_from)", "max({})", "max"),
    _time(
        "time_to_first_step_seconds",
        "Start to first step's end",
        FIRST_STEPS,
        "epoch(time - started_at)",
        "min({})",
        "min",
    ),
    _host("cpu_percent", "Node CPU", "percent", "CPU", "cpu_percent"),
    _host("cpu_used_cores", "Node CPU, in cores", "cores", "CPU", "cpu_percent / 100 * cpu_threads", over_parts="sum"),
    Metric(
        name="process_cpu_cores",
        title="Run's own CPU",
        unit="cores",
        group="CPU",
        better=None,
        source=PROCESSES,
        reading="cpu_cores",
        in_part="avg({})",
        over_parts="sum",
    ),
    _host("memory_used_bytes", "Node memory used", "bytes", "Memory", "memory_used_bytes"),
    _host(
        "memory_used_percent",
        "Node memory used, share",
        "percent",
        "Memory",
        "100.0 * memory_used_bytes / memory_total_bytes",
    ),
    _process_peak("process_anonymous_peak_bytes", "Run's own memory, peak", "anonymous_bytes"),
    _process_peak("process_pss_peak_bytes", "Run's PSS, peak", "pss_bytes"),
    _process_peak("process_rss_peak_bytes", "Run's RSS, peak", "rss_bytes"),
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
    _result("gpu_busy_percent", "GPU busy, of a step", "percent", "avg", result="gpu_busy_share", group="GPU"),
    _result("kernels_per_step", "Kernels a step", "", "avg", group="GPU"),
    _result(
        "sm_efficiency_estimated_percent",
        "SM efficiency, estimated",
        "percent",
        "avg",
        result="sm_efficiency_estimated",
        group="GPU",
    ),
    _result(
        "occupancy_estimated_percent",
        "Occupancy, estimated",
        "percent",
        "avg",
        result="occupancy_estimated",
        group="GPU",
    ),
    Metric(
        name="gpu_memory_used_bytes",
        title="GPU memory, peak",
        unit="bytes",
        group="GPU",
        better=Better.LOWER,
        source=GPUS,
        reading="memory_used_bytes",
        in_part="max({})",
        over_parts="max",
    ),
    Metric(
        name="gpu_memory_used_percent",
        title="GPU memory, peak share",
        unit="percent",
        group="GPU",
        better=Better.LOWER,
        source=GPUS,
        reading="100.0 * memory_used_bytes / memory_total_bytes",
        in_part="max({})",
        over_parts="max",
    ),
    _result(
        "gpu_memory_allocated_bytes",
        "Allocated by the framework",
        "bytes",
        "max",
        Better.LOWER,
        result="peak_memory_allocated",
        group="GPU",
    ),
    _result(
        "gpu_memory_reserved_bytes",
        "Reserved by the framework",
        "bytes",
        "max",
        Better.LOWER,
        result="peak_memory_reserved",
        group="GPU",
    ),
    _gpu("gpu_power_watts", "Power, each GPU", "watts", "power_watts", better=Better.LOWER),
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
    _result("accuracy", "Accuracy", "percent", "avg", Better.HIGHER, value=_IN_PERCENT),
    _result("loss", "Loss", "", "avg", Better.LOWER),
    _result("parameters", "Parameters", "", "max"),
    _result(
        "communication_percent",
        "Communication, of kernel time",
        "percent",
        "avg",
        Better.LOWER,
        result="communication_share",
        value=_IN_PERCENT,
    ),
    _result(
        "exposed_communication_percent",
        "Communication that computing does not hide",
        "percent",
        "avg",
        Better.LOWER,
        result="exposed_communication_share",
        value=_IN_PERCENT,
    ),
    # As reported, or at least as many as reported anything: a plain torchrun script does not say how many it has.
    Metric(
        name="ranks",
        title="Ranks",
        unit="",
        group="Result",
        better=None,
        source=RESULTS,
        reading="greatest(part + 1, CASE WHEN name = 'ranks' THEN value END)",
        in_part="max({})",
        over_parts="max",
    ),
)
"""Every metric, in the order in which they are shown."""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
