"""All that is detected of a node, once, when a session starts."""

from dataclasses import dataclass

from gpuagent.facts.cloud import detect_cloud_provider, detect_instance_type
from gpuagent.facts.container import detect_container
from gpuagent.facts.cpu import collect_cpu_facts
from gpuagent.facts.gpus import collect_driver_facts
from gpuagent.facts.limits import collect_limits
from gpuagent.facts.orchestrator import detect_orchestrator
from gpuagent.facts.surroundings import Surroundings
from gpuagent.facts.virtualization import detect_virtualization
from gpuagent.sources.host_memory import parse_meminfo


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The columns of the table sessions that describe the node; None where it cannot be told."""

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
    """Return what the node is; what cannot be told stays None, nothing is raised."""
    cpu = collect_cpu_facts(surroundings)
    limits = collect_limits(surroundings, cpu_threads=cpu.threads)
    meminfo = _meminfo(surroundings)
    driver = collect_driver_facts(surroundings)
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
        cpu_limit_cores=limits.cpu_cores,
        memory_total_bytes=meminfo.get("MemTotal"),
        memory_limit_bytes=limits.memory_bytes,
        swap_total_bytes=meminfo.get("SwapTotal"),
        gpu_count=driver.gpu_count,
        driver_version=driver.driver_version,
        cuda_driver_version=driver.cuda_driver_version,
        cloud_provider=detect_cloud_provider(surroundings),
        instance_type=detect_instance_type(surroundings),
    )


def os_name(os_release: str) -> str | None:
    """Return the distribution and its version as an os-release calls them together, or its bare name."""
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    name = fields.get("PRETTY_NAME") or fields.get("NAME") or ""
    return name.strip("\"'") or None


def _meminfo(surroundings: Surroundings) -> dict[str, int]:
    try:
        return parse_meminfo(surroundings.proc_text("meminfo"))
    except ValueError:
        return {}
