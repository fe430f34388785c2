"""The node's processors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuagent.facts.surroundings import Surroundings

# Implementer and part of Arm processors that hold GPUs, from util-linux's lscpu-arm.c: the kernel gives no names.
_ARM_PARTS = {
    ("0x41", "0xd07"): "Arm Cortex-A57",
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
    ("0x41", "0xd4f"): "Arm Neoverse-V2",
    ("0x43", "0x0af"): "Cavium ThunderX2",
    ("0x46", "0x001"): "Fujitsu A64FX",
    ("0x4e", "0x004"): "NVIDIA Carmel",
    ("0xc0", "0xac3"): "Ampere-1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """The node's processors; None where it cannot be told."""

    model: str | None
    sockets: int | None
    cores: int | None
    threads: int | None


def collect_cpu_facts(surroundings: Surroundings) -> CpuFacts:
    """Return the node's processors, those included that this container may not use."""
    processors = parse_cpuinfo(surroundings.proc_text("cpuinfo"))
    topology = _topology(surroundings) or _cpuinfo_topology(processors)
    return CpuFacts(
        model=cpu_model(processors),
        sockets=_count(package for package, _ in topology),
        cores=_count(topology),
        threads=len(re.findall(r"^cpu[0-9]+ ", surroundings.proc_text("stat"), flags=re.MULTILINE)) or None,
    )


def parse_cpuinfo(text: str) -> list[dict[str, str]]:
    """Return the paragraphs of a /proc/cpuinfo: one a CPU, and on POWER and old Arm one about the machine."""
    return [_paragraph(block) for block in re.split(r"\n\s*\n", text) if block.strip()]


def _paragraph(block: str) -> dict[str, str]:
    fields = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, colon, value in fields if colon}


def cpu_model(processors: Sequence[Mapping[str, str]]) -> str | None:
    """Return the processor's name, from x86's `model name`, POWER's `cpu`, or Arm's numbers."""
    for processor in processors:
        name = processor.get("model name") or processor.get("cpu") or _arm_model(processor)
        if name:
            return name
    return None


def _arm_model(processor: Mapping[str, str]) -> str | None:
    implementer, part = processor.get("CPU implementer"), processor.get("CPU part")
    if implementer is None or part is None:
        return None
    return _ARM_PARTS.get((implementer, part), f"Arm implementer {implementer} part {part}")


# Which socket, and which core.
Core = tuple[str, str]


def _topology(surroundings: Surroundings) -> set[Core]:
    """Return the node's cores as sysfs tells them; a core goes by the list of its threads."""
    cores: set[Core] = set()
    for cpu in (surroundings.sys / "devices/system/cpu").glob("cpu[0-9]*"):
        topology = f"devices/system/cpu/{cpu.name}/topology"
        package = surroundings.sys_text(f"{topology}/physical_package_id")
        threads = surroundings.sys_text(f"{topology}/thread_siblings_list")
        if threads:
            cores.add((package, threads))
    return cores


def _cpuinfo_topology(processors: Iterable[Mapping[str, str]]) -> set[Core]:
    """Return the node's cores as x86's cpuinfo tells them."""
    return {(cpu["physical id"], cpu["core id"]) for cpu in processors if "physical id" in cpu and "core id" in cpu}


def _count(things: Iterable[object]) -> int | None:
    return len(set(things)) or None
