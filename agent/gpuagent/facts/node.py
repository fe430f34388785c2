"""The facts of a node, detected once, when a session starts."""

from dataclasses import dataclass

from gpuagent.facts.cpu import collect_cpu_facts
from gpuagent.facts.gpus import collect_driver_facts
from gpuagent.facts.layers import (
    detect_cloud_provider,
    detect_container,
    detect_instance_type,
    detect_orchestrator,
    detect_virtualization,
)
from gpuagent.facts.surroundings import Surroundings
from gpuagent.sources.host import read_memory
from gpuagent.sources.support.cgroups import find_group, open_cpu, open_memory, parse_memberships, parse_mounts


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The columns of the table sessions that describe the node; None where nothing shows the value."""

    virtualization: str | None
    container: str
    orchestrator: str
    os: str | None
    kernel: str | None
    architecture: str
    boot_id: str | None
    cpu_model: str | None
    cpu_sockets: int | None
    cpu_cores: int | None
    cpu_threads: int | None
    cpu_limit_cores: float | None
    memory_total_bytes: int | None
    memory_limit_bytes: int | None
    swap_total_bytes: int | None
    gpu_count: int | None
    driver_version: str | None
    cuda_driver_version: str | None
    cloud_provider: str | None
    instance_type: str | None


def collect_node_facts(surroundings: Surroundings) -> NodeFacts:
    """Return the node's facts; an unknown one is None, nothing is raised."""
    cpu = collect_cpu_facts(surroundings)
    cpu_limit_cores, memory_limit_bytes = _collect_limits(surroundings, cpu.threads)
    driver = collect_driver_facts(surroundings)
    # psutil.virtual_memory() would count the GPUs' memory.
    memory = read_memory(surroundings.proc, surroundings.sys)
    return NodeFacts(
        virtualization=detect_virtualization(surroundings),
        container=detect_container(surroundings),
        orchestrator=detect_orchestrator(surroundings),
        os=os_name(surroundings.text("etc/os-release") or surroundings.text("usr/lib/os-release") or ""),
        kernel=surroundings.proc_text("sys/kernel/osrelease").strip() or None,
        architecture=surroundings.machine,
        boot_id=surroundings.proc_text("sys/kernel/random/boot_id").strip() or None,
        cpu_model=cpu.model,
        cpu_sockets=cpu.sockets,
        cpu_cores=cpu.cores,
        cpu_threads=cpu.threads,
        cpu_limit_cores=cpu_limit_cores,
        memory_total_bytes=memory.get("MemTotal"),
        memory_limit_bytes=memory_limit_bytes,
        swap_total_bytes=memory.get("SwapTotal"),
        gpu_count=driver.gpu_count,
        driver_version=driver.driver_version,
        cuda_driver_version=driver.cuda_driver_version,
        cloud_provider=detect_cloud_provider(surroundings),
        instance_type=detect_instance_type(surroundings),
    )


def _collect_limits(surroundings: Surroundings, cpu_threads: int | None) -> tuple[float | None, int | None]:
    """Return the agent's share of the node: CPU in cores and memory in bytes; None is no limit.

    An agent in a pod that sees the node's processes measures the node, of which its own limits say nothing. The limit
    on CPU is the smaller of the quota (containers) and of the CPUs that the agent may run on (Slurm).
    """
    # The first process of a pod's own namespace is in the pod.
    is_in_pod = detect_orchestrator(surroundings) in ("kubernetes", "openshift")
    if is_in_pod and surroundings.proc_text("1/cgroup") not in ("", surroundings.proc_text("self/cgroup")):
        return None, None
    memberships = parse_memberships(surroundings.proc_text("self/cgroup"))
    mounts = parse_mounts(surroundings.proc_text("self/mountinfo"))
    cpu = open_cpu(find_group("cpu", memberships, mounts), None)
    memory = open_memory(find_group("memory", memberships, mounts))
    try:
        quota = cpu.read().limit_cores if cpu else None
        memory_bytes = memory.read().limit_bytes if memory else None
    finally:
        for files in (cpu, memory):
            if files:
                files.close()
    is_subset = cpu_threads is not None and surroundings.allowed_cpus < cpu_threads
    limits = (quota, surroundings.allowed_cpus if is_subset else None)
    return min((limit for limit in limits if limit is not None), default=None), memory_bytes


def os_name(os_release: str) -> str | None:
    """Return the distribution and its version as an os-release calls them together, or its bare name."""
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    name = fields.get("PRETTY_NAME") or fields.get("NAME") or ""
    return name.strip("\"'") or None
