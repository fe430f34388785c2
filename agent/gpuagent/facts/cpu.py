"""The node's processors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from gpuagent.facts.surroundings import Surroundings
from gpuagent.sources.support.files import PSUTIL_ERRORS

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
