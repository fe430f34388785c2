from collections.abc import Callable
from pathlib import Path

from gpuagent.facts import Surroundings
from gpuagent.facts.cpu import CpuFacts, collect_cpu_facts, cpu_model, parse_cpuinfo
from tests.support.trees import node, plant


def test_hyperthreads_are_not_cores(tmp_path: Path, procfs: Callable[[Path], Path]) -> None:
    cpus = "sys/devices/system/cpu/cpu{}/topology/{}"
    for number in range(4):
        siblings = f"{number % 2},{number % 2 + 2}\n"
        plant(tmp_path, {cpus.format(number, "physical_package_id"): "0\n"})
        plant(tmp_path, {cpus.format(number, "thread_siblings_list"): siblings})
    given = Surroundings(root=tmp_path, proc=procfs(tmp_path / "proc"), sys=tmp_path / "sys", environment={})
    assert collect_cpu_facts(given) == CpuFacts(model=None, sockets=1, cores=2, threads=None)


def test_without_topology_in_sysfs_cpuinfo_counts(tmp_path: Path, procfs: Callable[[Path], Path]) -> None:
    given = node("bare", tmp_path)
    procfs(given.proc)
    facts = collect_cpu_facts(given)
    assert (facts.sockets, facts.cores, facts.threads) == (2, 8, 8)


def test_an_unknown_arm_processor_keeps_its_numbers() -> None:
    processors = parse_cpuinfo("processor : 0\nCPU implementer : 0x99\nCPU part : 0x123\n")
    assert cpu_model(processors) == "Arm implementer 0x99 part 0x123"
