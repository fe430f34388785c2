"""The speed, duration and evenness of a run. Output by joule and by money: see `hardware` and the package `prices`."""

from dataclasses import replace

from gpuagent_collector.metrics.metric import Better, StoredMetric, reported
from gpuagent_collector.metrics.metric_sources import (
    FIRST_STEPS,
    GPUS,
    LIFE,
    MEASURED_STEPS,
    OPERATIONS,
    RATES,
    RESULTS,
    STARTS,
    STEADY_STEPS,
    Source,
)

_LOWER, _HIGHER = Better.LOWER, Better.HIGHER

_SPAN = "CASE WHEN {1} > {0} THEN epoch({1} - {0}) END"


def _time(
    name: str, title: str, source: Source, reading: str, in_part: str, over_parts: str, *, detail: bool = False
) -> StoredMetric:
    """Return a metric in seconds; less is better."""
    return StoredMetric(name, title, "seconds", "Time", _LOWER, source, reading, in_part, over_parts, detail=detail)


def _start(name: str, title: str, instant: str) -> StoredMetric:
    """Return the metric that is the time from a run's launch to one of its instants."""
    return _time(name, title, STARTS, _SPAN.format("launched_at", instant), "min({})", "min", detail=True)


def _rate(
    name: str, title: str, source: Source, reading: str, in_part: str = "max({})", *, detail: bool = True
) -> StoredMetric:
    """Return a throughput, in which all ranks count."""
    return StoredMetric(name, title, "items/s", "Throughput", _HIGHER, source, reading, in_part, "sum", detail=detail)


RUN_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="throughput",
        title="Throughput",
        unit="items/s",
        group="Throughput",
        better=_HIGHER,
        source=RESULTS,
        reading="CASE WHEN is_measured THEN value END",
        in_part="arg_max({}, time)",
        over_parts="sum",
        result="throughput",
    ),
    replace(_time("step_seconds", "Step, median", MEASURED_STEPS, "seconds", "median({})", "max"), quantity="Step"),
    # An imported run may have no times: its begin is then its end. A clock that was set back leaves an end before it.
    _time("run_seconds", "Run duration", LIFE, _SPAN.format("started_at", "ended_at"), "max({})", "max"),
    _time("measure_seconds", "Measured phase", LIFE, _SPAN.format("measure_from", "measure_to"), "max({})", "max"),
    _start("process_start_seconds", "Start to process", "process_at"),
    _start("first_report_seconds", "Start to first report", "reported_at"),
    _time(
        "time_to_first_step_seconds",
        "Start to first step's end",
        FIRST_STEPS,
        _SPAN.format("launched_at", "time"),
        "min({})",
        "min",
    ),
)

# Of the steps that the workload traced: the union of all work on the GPU, its absence in a measured step, the sum of
# kernels' times, and the operators' own time on the host.
TRACE_METRICS: tuple[StoredMetric, ...] = (
    reported("gpu_busy_seconds_per_step", "GPU busy per step", "seconds", "avg", _LOWER, group="Time"),
    reported("gpu_gap_seconds_per_step", "GPU idle per step", "seconds", "avg", _LOWER, group="Time"),
    _time("kernel_seconds_per_step", "Kernel time per step", OPERATIONS, "kernel_seconds", "max({})", "avg"),
    _time("operator_cpu_seconds_per_step", "Operators' CPU per step", OPERATIONS, "operator_seconds", "max({})", "avg"),
)


# Items a second of each GPU are also the items of a GPU-second.
EFFICIENCY_METRICS: tuple[StoredMetric, ...] = (
    _rate(
        "items_per_gpu_second", "Throughput, each GPU", RATES, "throughput / gpus", "arg_max({}, time)", detail=False
    ),
    _rate("steady_throughput", "Throughput once steady", STEADY_STEPS, "items_per_second"),
    _rate("timed_throughput", "Throughput of timed steps", STEADY_STEPS, "timed_items_per_second"),
    # Each rank reports the size of the data of all of them.
    reported("items_per_epoch", "Items of an epoch", "", "max", group="Throughput", detail=True),
)


def _uneven(
    name: str, title: str, unit: str, source: Source, reading: str, in_part: str, *, detail: bool = False
) -> StoredMetric:
    """Return a metric of the least steady rank or GPU."""
    return StoredMetric(name, title, unit, "Steadiness", _LOWER, source, reading, in_part, "max", detail=detail)


_P95_BY_P50 = "approx_quantile({0}, 0.95) / approx_quantile({0}, 0.5)"
_P90_LESS_P10 = "approx_quantile({0}, 0.9) - approx_quantile({0}, 0.1)"

# Percentiles of utilisation are in points, over its samples.
STEADINESS_METRICS: tuple[StoredMetric, ...] = (
    _uneven(
        "steps_before_steady", "Measured steps before steady", "", STEADY_STEPS, "steps_before", "max({})", detail=True
    ),
    _uneven("step_p95_over_p50", "Step time, p95 ÷ median", "", MEASURED_STEPS, "seconds", _P95_BY_P50),
    _uneven(
        "gpu_utilization_spread_percent",
        "GPU utilisation, p90 − p10",
        "percent",
        GPUS,
        "utilization_percent",
        _P90_LESS_P10,
    ),
)
