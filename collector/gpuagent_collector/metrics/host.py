"""The use of a run's nodes: processors and memory."""

from dataclasses import replace

from gpuagent_collector.metrics.metric import Better, StoredMetric
from gpuagent_collector.metrics.metric_sources import CGROUPS, CPU_ENERGY, HOST, PROCESSES


def _process_peak(name: str, quantity: str, reading: str, *, detail: bool = False) -> StoredMetric:
    """Return the metric that is the sum over nodes of the highest `reading` of the run's process tree."""
    return StoredMetric(
        name=name,
        title=f"{quantity}, peak",
        quantity=quantity,
        unit="bytes",
        group="Memory",
        better=Better.LOWER,
        source=PROCESSES,
        reading=reading,
        in_part="max({})",
        over_parts="sum",
        detail=detail,
    )


def _host(name: str, title: str, unit: str, group: str, reading: str, *, over_parts: str = "avg") -> StoredMetric:
    """Return the metric that is the mean of `reading` in time on each node."""
    return StoredMetric(
        name=name,
        title=title,
        quantity=title,
        unit=unit,
        group=group,
        better=None,
        source=HOST,
        reading=reading,
        in_part="avg({})",
        over_parts=over_parts,
    )


HOST_METRICS: tuple[StoredMetric, ...] = (
    _host("cpu_percent", "Node CPU", "percent", "CPU", "cpu_percent"),
    _host("cpu_used_cores", "Node CPU, in cores", "cores", "CPU", "cpu_percent / 100 * cpu_threads", over_parts="sum"),
    _host("cpu_user_percent", "Node CPU in programs", "percent", "CPU", "cpu_user_percent"),
    _host("cpu_system_percent", "Node CPU in the kernel", "percent", "CPU", "cpu_system_percent"),
    _host("cpu_iowait_percent", "Node CPU waiting for disks", "percent", "CPU", "cpu_iowait_percent"),
    StoredMetric(
        name="process_cpu_cores",
        title="Run's own CPU",
        quantity="Run's own CPU",
        unit="cores",
        group="CPU",
        better=None,
        source=PROCESSES,
        reading="cpu_cores",
        in_part="avg({})",
        over_parts="sum",
    ),
    StoredMetric(
        name="cpu_energy_joules",
        title="Energy of the nodes' CPUs",
        unit="joules",
        group="Energy",
        # As gpu_energy_joules; and it is the whole node's, whoever used it.
        better=None,
        source=CPU_ENERGY,
        reading="energy_joules",
        in_part="sum({})",
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
    _process_peak("process_anonymous_peak_bytes", "Run's own memory", "anonymous_bytes"),
    _process_peak("process_pss_peak_bytes", "Run's PSS", "pss_bytes", detail=True),
    _process_peak("process_rss_peak_bytes", "Run's RSS", "rss_bytes", detail=True),
    replace(_process_peak("cgroup_memory_peak_bytes", "Control group's memory", "memory_used_bytes"), source=CGROUPS),
    replace(
        _process_peak("cgroup_anonymous_peak_bytes", "Control group's own memory", "memory_anonymous_bytes"),
        source=CGROUPS,
        detail=True,
    ),
)
