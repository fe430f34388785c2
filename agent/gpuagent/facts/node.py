"""The identity of a node, and the facts of it and its processors, detected once, when a session starts."""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

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
from gpuagent.sources.support.files import PSUTIL_ERRORS

# Made up once for gpuagent, so that its identities reveal nothing to others.
_NAMESPACE = uuid.UUID("f2a3b3a4-1329-47d2-9ab5-e94261f376b1")

_MACHINE_ID_FILES = ("etc/machine-id", "var/lib/dbus/machine-id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, of which several may have one identity.

    Attributes:
        boot_id: changes when the machine restarts; None: unknown.
        in_container: whether this is a container, which has a hostname of its own.
    """

    boot_id: str | None = None
    in_container: bool = False


def find_machine(surroundings: Surroundings) -> Machine:
    """Return the machine; nothing is raised."""
    boot_id = surroundings.proc_text("sys/kernel/random/boot_id").strip() or None
    return Machine(boot_id=boot_id, in_container=detect_container(surroundings) != "none")


def node_uuid(surroundings: Surroundings, override: str | None = None) -> str | None:
    """Return the node's identity, or None where it has none: the caller then makes one and keeps it.

    1. The user's choice: a UUID as it is, any other text hashed.
    2. The machine ID, hashed, since it should not be shown to others (machine-id(5)).
    3. In a container the machine ID is the image's, and the same on every host, unless it was mounted in on purpose.
       There the boot ID replaces it, hashed: all containers of one host share it and no other host has it, but a
       restarted node is another one.
    """
    if override is not None:
        try:
            return str(uuid.UUID(override))
        except ValueError:
            return _hash("user", override)
    is_contained = detect_container(surroundings) != "none"
    is_mounted = any(
        mount.point == "/etc/machine-id" and mount.root.endswith("/etc/machine-id") for mount in surroundings.mounts()
    )
    if not is_contained or is_mounted:
        found = (_parse_identity(surroundings.text(path)) for path in _MACHINE_ID_FILES)
        if machine_id := next(filter(None, found), None):
            return _hash("machine", machine_id)
    boot_id = _parse_identity(surroundings.proc_text("sys/kernel/random/boot_id").strip()) if is_contained else None
    return None if boot_id is None else _hash("boot", boot_id)


def _parse_identity(text: str | None) -> str | None:
    """Return a machine or boot ID without its hyphens; None for one that is not set yet ("uninitialized")."""
    try:
        return uuid.UUID(text or "").hex
    except ValueError:
        return None


def _hash(kind: str, identity: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{kind}:{identity}"))


# Implementer and part of Arm processors that hold GPUs, from util-linux's lscpu-arm.c: the kernel gives no names.
_ARM_PARTS = {
    ("0x41", "0xd07"): "Arm Cortex-A57",
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd42"): "Arm Cortex-A78AE",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
    ("0x41", "0xd4f"): "Arm Neoverse-V2",
    ("0x41", "0xd83"): "Arm Neoverse-V3AE",
    ("0x41", "0xd84"): "Arm Neoverse-V3",
    ("0x41", "0xd85"): "Arm Cortex-X925",
    ("0x41", "0xd87"): "Arm Cortex-A725",
    ("0x41", "0xd8e"): "Arm Neoverse-N3",
    ("0x43", "0x0af"): "Cavium ThunderX2",
    ("0x46", "0x001"): "Fujitsu A64FX",
    ("0x4e", "0x004"): "NVIDIA Carmel",
    ("0xc0", "0xac3"): "Ampere-1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """The node's processors; None where the kernel does not describe them."""

    model: str | None
    sockets: int | None
    cores: int | None
    threads: int | None


def collect_cpu_facts(surroundings: Surroundings) -> CpuFacts:
    """Return the node's processors, including those that this container may not use."""
    processors = parse_cpuinfo(surroundings.proc_text("cpuinfo"))
    # Of each core, its socket and the list of its threads. psutil counts no sockets, and reads the real /sys only.
    cores: set[tuple[str, str]] = set()
    for cpu in (surroundings.sys / "devices/system/cpu").glob("cpu[0-9]*"):
        topology = f"devices/system/cpu/{cpu.name}/topology"
        if siblings := surroundings.sys_text(f"{topology}/thread_siblings_list"):
            cores.add((surroundings.sys_text(f"{topology}/physical_package_id"), siblings))
    if not cores:
        # The cpuinfo of x86 has the same.
        cores = {(cpu["physical id"], cpu["core id"]) for cpu in processors if {"physical id", "core id"} <= cpu.keys()}
    # The node's logical CPUs; psutil.cpu_count() would count those of the agent's own /sys.
    try:
        threads: int | None = len(psutil.cpu_times(percpu=True)) or None
    except PSUTIL_ERRORS:
        threads = None
    return CpuFacts(
        model=cpu_model(processors),
        sockets=len({socket for socket, _ in cores}) or None,
        cores=len(cores) or None,
        threads=threads,
    )


def parse_cpuinfo(text: str) -> list[dict[str, str]]:
    """Return the paragraphs of a /proc/cpuinfo: one a CPU, and on POWER and old Arm one about the machine."""
    blocks = (block.splitlines() for block in re.split(r"\n\s*\n", text) if block.strip())
    paragraphs = ([line.partition(":") for line in lines] for lines in blocks)
    return [{name.strip(): value.strip() for name, colon, value in fields if colon} for fields in paragraphs]


def cpu_model(processors: Sequence[Mapping[str, str]]) -> str | None:
    """Return the processors' name, from x86's `model name`, POWER's `cpu`, or Arm's numbers; both of two kinds."""
    names: dict[str, None] = {}
    for processor in processors:
        implementer, part = processor.get("CPU implementer"), processor.get("CPU part")
        if name := processor.get("model name") or processor.get("cpu"):
            names[name] = None
        elif implementer is not None and part is not None:
            names[_ARM_PARTS.get((implementer, part), f"Arm implementer {implementer} part {part}")] = None
    return ", ".join(names) or None


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
