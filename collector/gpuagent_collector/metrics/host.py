"""The use of a run's nodes: processors and memory."""

from gpuagent_collector.metrics.metric import StoredMetric, sampled
from gpuagent_collector.metrics.metric_sources import CPU_ENERGY, HOST


def _host(name: str, title: str, unit: str, group: str, reading: str, over_parts: str) -> StoredMetric:
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


_CORES = "cpu_percent / 100 * cpu_threads"
_SHARE = "100.0 * memory_used_bytes / memory_total_bytes"

HOST_METRICS: tuple[StoredMetric, ...] = (
    *sampled(
        "host_samples",
        cpu_percent=[_host("cpu_used_cores", "Node CPU, in cores", "cores", "CPU", _CORES, "sum")],
        memory_used_bytes=[
            _host("memory_used_percent", "Node memory used, share", "percent", "Memory", _SHARE, "avg"),
        ],
    ),
    *sampled("process_samples"),
    *sampled("cgroup_samples"),
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
)
