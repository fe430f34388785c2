"""What a run took of its nodes: processors and memory."""

from gpuagent_collector.metric_sources import HOST, PROCESSES
from gpuagent_collector.metrics.metric import Better, Metric


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


HOST_METRICS: tuple[Metric, ...] = (
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
)
