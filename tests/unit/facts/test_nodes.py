"""Facts of a dozen kinds of node, each a small tree of files."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gpuagent.facts import Surroundings, collect_node_facts, job_labels
from gpuagent.facts.node import CpuFacts, collect_cpu_facts, cpu_model, parse_cpuinfo
from tests.support.nvml_replay import NO_DRIVER
from tests.support.trees import node, plant


def facts(**columns: Any) -> dict[str, Any]:
    """Return facts of a machine without containers or virtualization, but for `columns`."""
    return {"virtualization": "none", "container": "none", "orchestrator": "none", "cloud_provider": None, **columns}


EXPECTED = {
    "bare": facts(
        os="Ubuntu 24.04.1 LTS",
        kernel="6.8.0-45-generic",
        architecture="x86_64",
        cpu_model="Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz",
        cpu_sockets=2,
        cpu_cores=8,
        cpu_threads=8,
        cpu_limit_cores=None,
        memory_total_bytes=16_384_000 * 1024,
        memory_limit_bytes=None,
        swap_total_bytes=2_048_000 * 1024,
        gpu_count=0,
        driver_version=None,
        instance_type=None,
    ),
    "kvm_vm": facts(virtualization="kvm", cpu_sockets=1),
    "docker": facts(container="docker", cpu_threads=8, cpu_limit_cores=2.0, memory_limit_bytes=4 * 2**30),
    **{name: facts(container=name) for name in ("podman", "apptainer", "charliecloud")},
    "kubernetes_pod_in_vm": facts(
        virtualization="kvm",
        container="containerd",
        orchestrator="kubernetes",
        cloud_provider="gcp",
        cpu_model="Intel(R) Xeon(R) CPU @ 2.20GHz",
        cpu_limit_cores=1.5,
        memory_limit_bytes=None,
    ),
    "openshift_pod": facts(
        container="cri-o", orchestrator="openshift", cpu_limit_cores=None, memory_limit_bytes=8 * 2**30
    ),
    "slurm_job": facts(orchestrator="slurm", cpu_threads=8, cpu_limit_cores=4, memory_limit_bytes=16 * 2**30),
    "gce": facts(virtualization="kvm", cloud_provider="gcp", instance_type=None),
    "ec2": facts(virtualization="kvm", cloud_provider="aws", instance_type="g5.xlarge", cpu_model="AMD EPYC 7R32"),
    "power9": facts(
        architecture="ppc64le",
        cpu_model="POWER9, altivec supported",
        cpu_sockets=2,
        cpu_cores=2,
        cpu_threads=8,
        # Without NUMA nodes 252 to 255, the memory of the GPUs.
        memory_total_bytes=(263_931_968 + 268_031_040) * 1024,
        swap_total_bytes=4_194_240 * 1024,
    ),
    "aarch64": facts(architecture="aarch64", cpu_model="Arm Neoverse-N1", cpu_sockets=1, cpu_cores=4),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_node_is_recognised(tmp_path: Path, name: str, procfs: Callable[[Path], Path]) -> None:
    given = node(name, tmp_path, open_nvml=NO_DRIVER)
    procfs(given.proc)
    found = asdict(collect_node_facts(given))
    assert {column: found[column] for column in EXPECTED[name]} == EXPECTED[name]


def test_facts_of_an_empty_node_are_absent(tmp_path: Path, procfs: Callable[[Path], Path]) -> None:
    procfs(tmp_path / "proc")
    found = asdict(collect_node_facts(replace(small(tmp_path, {}), machine="x")))
    known = {name: value for name, value in found.items() if value is not None}
    assert known == {"container": "none", "orchestrator": "none", "architecture": "x", "gpu_count": 0}


def test_cpus_that_the_agent_may_not_use_are_a_limit(tmp_path: Path, procfs: Callable[[Path], Path]) -> None:
    given = node("bare", tmp_path, allowed_cpus=8)
    procfs(given.proc)
    assert collect_node_facts(given).cpu_limit_cores is None
    assert collect_node_facts(replace(given, allowed_cpus=3)).cpu_limit_cores == 3


def test_limits_of_an_agent_in_a_pod_are_not_those_of_its_node(tmp_path: Path, procfs: Callable[[Path], Path]) -> None:
    given = node("kubernetes_pod_in_vm", tmp_path)
    procfs(given.proc)
    assert collect_node_facts(given).cpu_limit_cores == 1.5
    plant(given.proc, {"1/cgroup": "0::/init.scope\n"})
    found = collect_node_facts(given)
    assert (found.orchestrator, found.cpu_limit_cores, found.memory_limit_bytes) == ("kubernetes", None, None)


def test_this_machine_has_basic_facts() -> None:
    found = collect_node_facts(Surroundings())
    assert found.cpu_threads
    assert found.memory_total_bytes
    assert found.kernel


def small(tmp_path: Path, files: dict[str, str], **environment: str) -> Surroundings:
    plant(tmp_path, files)
    return Surroundings(
        root=tmp_path, proc=tmp_path / "proc", sys=tmp_path / "sys", environment=environment, open_nvml=NO_DRIVER
    )


VIRTUAL = "processor: 0\nflags : fpu hypervisor\n"
DMI = "sys/class/dmi/id/"


@pytest.mark.parametrize(
    ("cpuinfo", "files", "expected"),
    [
        (VIRTUAL, {DMI + "sys_vendor": "VMware, Inc.", DMI + "product_name": "VMware7,1"}, "vmware"),
        (VIRTUAL, {DMI + "sys_vendor": "innotek GmbH", DMI + "product_name": "VirtualBox"}, "virtualbox"),
        (VIRTUAL, {DMI + "sys_vendor": "Microsoft Corporation", DMI + "product_name": "Virtual Machine"}, "hyperv"),
        (VIRTUAL, {DMI + "sys_vendor": "Xen", DMI + "product_name": "HVM domU"}, "xen"),
        (VIRTUAL, {DMI + "sys_vendor": "Nobody Knows"}, "vm-other"),
        (VIRTUAL, {"sys/hypervisor/type": "xen\n"}, "xen"),
        (VIRTUAL, {"sys/hypervisor/type": "xen\n", "proc/xen/capabilities": "control_d\n"}, "none"),
        (VIRTUAL, {"sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock\n"}, "kvm"),
        (VIRTUAL, {}, "vm-other"),
        # A bare machine of a cloud vendor.
        ("flags : fpu\n", {DMI + "sys_vendor": "Google", DMI + "product_name": "Eve"}, "none"),
        # Processors without flags.
        ("platform : pSeries\nmachine : CHRP IBM pSeries (emulated by qemu)\n", {}, "kvm"),
        ("platform : pSeries\nmachine : CHRP IBM,9009-42A\n", {}, "powervm"),
        ("platform : PowerNV\n", {}, "none"),
        ("CPU implementer : 0x41\n", {}, None),
    ],
)
def test_virtual_machines_are_known(tmp_path: Path, cpuinfo: str, files: dict[str, str], expected: str | None) -> None:
    found = collect_node_facts(small(tmp_path, {"proc/cpuinfo": cpuinfo, **files}))
    assert found.virtualization == expected


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ({"proc/self/cgroup": "4:memory:/docker/4f5a6b\n"}, {}, "docker"),
        ({"proc/self/cgroup": "0::/system.slice/docker-4f5a6b.scope\n"}, {}, "docker"),
        ({"proc/self/cgroup": "0::/machine.slice/libpod-4f5a6b.scope\n"}, {}, "podman"),
        ({"proc/self/cgroup": "0::/kubepods.slice/cri-containerd-4f5a.scope\n"}, {}, "containerd"),
        ({"proc/self/cgroup": "0::/kubepods.slice/crio-4f5a.scope\n"}, {}, "cri-o"),
        ({".singularity.d/runscript": ""}, {}, "apptainer"),
        ({}, {"SINGULARITY_CONTAINER": "/x.sif"}, "singularity"),
        ({}, {"container": "systemd-nspawn"}, "systemd-nspawn"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "other"),
        ({"proc/self/cgroup": "0::/system.slice/docker.service\n"}, {}, "none"),
        ({"proc/self/cgroup": "0::/user.slice\n"}, {}, "none"),
    ],
)
def test_a_container_is_recognised_by_its_traces(
    tmp_path: Path, files: dict[str, str], environment: dict[str, str], expected: str
) -> None:
    assert collect_node_facts(small(tmp_path, files, **environment)).container == expected


KVM = {"proc/cpuinfo": VIRTUAL, DMI + "sys_vendor": "QEMU"}
DOCKER_POD = (
    "9 8 0:9 /var/lib/docker/containers/4f/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"
    "9 8 0:9 /var/lib/kubelet/pods/1a/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"
)
CRIO_POD = "0::/kubepods.slice/kubepods-pod1a.slice/crio-4f.scope\n"
SERVICE_CA = "run/secrets/kubernetes.io/serviceaccount/service-ca.crt"


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ({"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": DOCKER_POD}, {}, ("docker", "kubernetes")),
        ({"proc/self/cgroup": CRIO_POD, SERVICE_CA: ""}, {}, ("cri-o", "openshift")),
        ({}, {"SLURM_JOB_ID": "7", "APPTAINER_CONTAINER": "/x.sif"}, ("apptainer", "slurm")),
        ({}, {"SLURM_JOB_ID": "7", "CH_RUNNING": "Weird Al"}, ("charliecloud", "slurm")),
        ({"proc/self/cgroup": "0::/machine.slice/libpod-4f.scope\n"}, {"SLURM_JOB_ID": "7"}, ("podman", "slurm")),
        ({".dockerenv": "", "proc/self/cgroup": "0::/\n"}, {}, ("docker", "none")),
        ({"proc/self/cgroup": "4:cpu:/slurm/uid_1/job_7/step_0\n"}, {}, ("none", "slurm")),
        ({"proc/self/cgroup": "4:memory:/lsf/satori/job.4711.31.1574\n"}, {}, ("none", "lsf")),
        ({"proc/self/cgroup": "0::/system.slice/lsfd.service\n"}, {}, ("none", "none")),
    ],
)
def test_each_layer_around_an_agent_in_a_virtual_machine_is_recognised(
    tmp_path: Path, files: dict[str, str], environment: dict[str, str], expected: tuple[str, str]
) -> None:
    found = collect_node_facts(small(tmp_path, {**KVM, **files}, **environment))
    assert (found.virtualization, found.container, found.orchestrator) == ("kvm", *expected)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({DMI + "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, ("azure", None)),
        ({DMI + "chassis_asset_tag": "OracleCloud.com"}, ("oracle", None)),
        ({DMI + "sys_vendor": "Xen", DMI + "bios_version": "4.11.amazon"}, ("aws", None)),
        ({DMI + "sys_vendor": "Amazon EC2", DMI + "product_name": "p4d.24xlarge"}, ("aws", "p4d.24xlarge")),
        ({DMI + "sys_vendor": "Dell Inc."}, (None, None)),
    ],
)
def test_a_cloud_is_recognised_by_its_firmware(
    tmp_path: Path, files: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    found = collect_node_facts(small(tmp_path, files))
    assert (found.cloud_provider, found.instance_type) == expected


def test_hyperthreads_are_not_cores(tmp_path: Path, procfs: Callable[[Path], Path]) -> None:
    procfs(tmp_path / "proc")
    topology = "sys/devices/system/cpu/cpu{}/topology/"
    cpus = {topology.format(number): f"{number % 2},{number % 2 + 2}\n" for number in range(4)}
    files = {f"{folder}thread_siblings_list": siblings for folder, siblings in cpus.items()}
    given = small(tmp_path, {**files, **{f"{folder}physical_package_id": "0\n" for folder in cpus}})
    assert collect_cpu_facts(given) == CpuFacts(model=None, sockets=1, cores=2, threads=None)


def test_an_unknown_arm_processor_keeps_its_numbers() -> None:
    processors = parse_cpuinfo("processor : 0\nCPU implementer : 0x99\nCPU part : 0x123\n")
    assert cpu_model(processors) == "Arm implementer 0x99 part 0x123"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # Graviton2 to 4 and Grace, and DGX Spark with two kinds of core.
        (["0xd0c"], "Arm Neoverse-N1"),
        (["0xd40"], "Arm Neoverse-V1"),
        (["0xd4f", "0xd4f"], "Arm Neoverse-V2"),
        (["0xd85", "0xd87", "0xd85"], "Arm Cortex-X925, Arm Cortex-A725"),
    ],
)
def test_arm_processors_have_the_names_of_their_cores(parts: list[str], expected: str) -> None:
    cpuinfo = "\n".join(f"processor : {n}\nCPU implementer : 0x41\nCPU part : {part}\n" for n, part in enumerate(parts))
    assert cpu_model(parse_cpuinfo(cpuinfo)) == expected


ARRAY_TASK = {
    "SLURM_CLUSTER_NAME": "satori",
    "SLURM_JOB_ID": "43",
    "SLURM_ARRAY_JOB_ID": "42",
    "SLURM_ARRAY_TASK_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-4]",
}


def test_an_agent_in_a_job_has_its_labels_none_empty_and_leftover_variables_make_no_job(tmp_path: Path) -> None:
    assert job_labels(node("slurm_job", tmp_path)) == {"slurm_job_id": "42", "slurm_job_nodelist": "n1"}
    task = node("bare", tmp_path, environment={**ARRAY_TASK, "SLURM_JOB_USER": "", "SLURM_JOB_GPUS": "0,1"})
    assert job_labels(task) == {name.lower(): value for name, value in ARRAY_TASK.items()}
    leftover = {"SLURM_CLUSTER_NAME": "satori", "SLURM_JOB_NODELIST": "n1"}
    assert job_labels(replace(task, environment=leftover)) == {}


LSF_JOB = {
    "LSB_JOBID": "4711",
    "LSB_JOBNAME": "train[3]",
    "LSB_JOBINDEX": "3",
    "LSB_QUEUE": "gpu",
    "LSB_MCPU_HOSTS": "node0012 40 node0013 40",
    "LSFUSER": "user1",
}


def test_an_agent_in_a_job_of_lsf_has_its_labels(tmp_path: Path) -> None:
    task = node("power9", tmp_path, environment={**LSF_JOB, "LSB_HOSTS": "node0012 " * 40})
    assert job_labels(task) == {name.lower(): value for name, value in LSF_JOB.items()}
    assert collect_node_facts(task).orchestrator == "lsf"
    # A job that is no array.
    assert job_labels(replace(task, environment={"LSB_JOBID": "1", "LSB_JOBINDEX": "0"})) == {"lsb_jobid": "1"}
    assert job_labels(replace(task, environment={"LSB_QUEUE": "gpu"})) == {}
