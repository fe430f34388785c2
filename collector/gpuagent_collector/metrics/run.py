"""How fast a run was."""

from dataclasses import replace

from gpuagent_collector.metrics.metric import Better, StoredMetric
from gpuagent_collector.metrics.metric_sources import FIRST_STEPS, LIFE, MEASURED_STEPS, RESULTS, STARTS, Source


def _time(
    name: str, title: str, source: Source, reading: str, in_part: str, over_parts: str, quantity: str | None = None
) -> StoredMetric:
    """Return a metric in seconds, of which less is better."""
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
    """Return the metric that is the time from when a run's program was called for to one of its instants."""
    return replace(_time(name, title, STARTS, f"epoch({instant} - launched_at)", "min({})", "min"), detail=True)


RUN_METRICS: tuple[StoredMetric, ...] = (
    StoredMetric(
        name="throughput",
        title="Throughput",
        unit="items/s",
        group="Throughput",
        better=Better.HIGHER,
        source=RESULTS,
        reading="CASE WHEN name = 'throughput' AND is_measured THEN value END",
        in_part="arg_max({}, time)",
        over_parts="sum",
    ),
    _time("step_seconds", "Step, median", MEASURED_STEPS, "wall_seconds", "median({})", "max", "Step"),
    _time("run_seconds", "Run, whole", LIFE, "epoch(ended_at - started_at)", "max({})", "max"),
    _time("measure_seconds", "Measured phase", LIFE, "epoch(measure_to - measure_from)", "max({})", "max"),
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
