from pathlib import Path

import pytest

from gpuagent.facts import Surroundings
from gpuagent.facts.cpu import CpuFacts, collect_cpu_facts, cpu_model, parse_cpuinfo
from gpuagent.facts.limits import allowed_cpus, count_cpus
from tests.support.trees import node, plant


def test_hyperthreads_are_not_cores(tmp_path: Path) -> None:
    cpus = "devices/system/cpu/cpu{}/topology/{}"
    for number in range(4):
        plant(
            tmp_path / "sys",
            {
                cpus.format(number, "physical_package_id"): "0\n",
                cpus.format(number, "thread_siblings_list"): f"{number % 2},{number % 2 + 2}\n",
            },
        )
    given = Surroundings(root=tmp_path, proc=tmp_path / "proc", sys=tmp_path / "sys", environment={})
    assert collect_cpu_facts(given) == CpuFacts(model=None, sockets=1, cores=2, threads=None)


def test_without_topology_in_sysfs_cpuinfo_tells(tmp_path: Path) -> None:
    facts = collect_cpu_facts(node("bare", tmp_path))
    assert (facts.sockets, facts.cores, facts.threads) == (2, 8, 8)


def test_an_arm_processor_of_no_known_name_keeps_its_numbers() -> None:
    processors = parse_cpuinfo("processor : 0\nCPU implementer : 0x99\nCPU part : 0x123\n")
    assert cpu_model(processors) == "Arm implementer 0x99 part 0x123"


@pytest.mark.parametrize(("cpus", "count"), [("0-3", 4), ("0-3,8", 5), ("7", 1), ("", None), ("none", None)])
def test_a_list_of_cpus_is_counted(cpus: str, count: int | None) -> None:
    assert count_cpus(cpus) == count


def test_allowed_cpus_are_those_of_the_status() -> None:
    assert allowed_cpus("Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-2,5\n") == 4
    assert allowed_cpus("Name:\tx\n") is None
