"""The speed, duration and evenness of a run. Output by joule and by money: see `gpu` and the package `prices`."""

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


def _time(
    name: str, title: str, source: Source, reading: str, in_part: str, over_parts: str, quantity: str | None = None
) -> StoredMetric:
    """Return a metric in seconds; less is better."""
    return StoredMetric(
        name=name,
        title=title,
        quantity=quantity,
        unit="seconds",
        group="Time",
        better=Better.LOWER,
        source=source,
        reading=reading,
        in_part=in_part,
        over_parts=over_parts,
    )


def _start(name: str, title: str, instant: str) -> StoredMetric:
    """Return the metric that is the time from a run's launch to one of its instants."""
    return replace(
        _time(name, title, STARTS, f"nullif(epoch({instant} - launched_at), 0)", "min({})", "min"), detail=True
    )


RUN_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="throughput",
        title="Throughput",
        unit="items/s",
        group="Throughput",
        better=Better.HIGHER,
        source=RESULTS,
        reading="CASE WHEN is_measured THEN value END",
        in_part="arg_max({}, time)",
        over_parts="sum",
        result="throughput",
    ),
    _time("step_seconds", "Step, median", MEASURED_STEPS, "seconds", "median({})", "max", "Step"),
    # An imported run may have no times: its begin is then its end.
    _time("run_seconds", "Run duration", LIFE, "nullif(epoch(ended_at - started_at), 0)", "max({})", "max"),
    _time("measure_seconds", "Measured phase", LIFE, "nullif(epoch(measure_to - measure_from), 0)", "max({})", "max"),
    _start("process_start_seconds", "Start to process", "process_at"),
    _start("first_report_seconds", "Start to first report", "reported_at"),
    _time(
        "time_to_first_step_seconds",
        "Start to first step's end",
        FIRST_STEPS,
        "epoch(time - launched_at)",
        "min({})",
        "min",
    ),
)

# Of the steps that the workload traced: the union of all work on the GPU, its absence in a measured step, the sum of
# kernels' times, and the operators' own time on the host.
TRACE_METRICS: tuple[StoredMetric, ...] = (
    reported("gpu_busy_seconds_per_step", "GPU busy a step", "seconds", "avg", Better.LOWER, group="Time"),
    reported("gpu_gap_seconds_per_step", "GPU idle a step", "seconds", "avg", Better.LOWER, group="Time"),
    _time("kernel_seconds_per_step", "Kernel time a step", OPERATIONS, "kernel_seconds", "max({})", "avg"),
    _time("operator_cpu_seconds_per_step", "Operators' CPU a step", OPERATIONS, "operator_seconds", "max({})", "avg"),
)


# Items a second of each GPU are also the items of a GPU-second.
EFFICIENCY_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="items_per_gpu_second",
        title="Throughput, each GPU",
        unit="items/s",
        group="Throughput",
        better=Better.HIGHER,
        source=RATES,
        reading="throughput / gpus",
        in_part="arg_max({}, time)",
        over_parts="sum",
    ),
    StoredMetric(
        name="steady_throughput",
        title="Throughput once steady",
        unit="items/s",
        group="Throughput",
        better=Better.HIGHER,
        source=STEADY_STEPS,
        reading="items_per_second",
        in_part="max({})",
        over_parts="sum",
        detail=True,
    ),
    StoredMetric(
        name="timed_throughput",
        title="Throughput of timed steps",
        unit="items/s",
        group="Throughput",
        better=Better.HIGHER,
        source=STEADY_STEPS,
        reading="timed_items_per_second",
        in_part="max({})",
        over_parts="sum",
        detail=True,
    ),
    # Each rank reports the size of the data of all of them.
    reported("items_per_epoch", "Items of an epoch", "", "max", group="Throughput", detail=True),
)


# Of the least steady rank or GPU. Percentiles of utilisation are in points, over its samples.
STEADINESS_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="steps_before_steady",
        title="Measured steps before steady",
        unit="",
        group="Steadiness",
        better=Better.LOWER,
        source=STEADY_STEPS,
        reading="steps_before",
        in_part="max({})",
        over_parts="max",
        detail=True,
    ),
    StoredMetric(
        name="step_p95_over_p50",
        title="Step, p95 by median",
        unit="",
        group="Steadiness",
        better=Better.LOWER,
        source=MEASURED_STEPS,
        reading="seconds",
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
