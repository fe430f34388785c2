"""The layers around the agent, recognised by their traces: machine, cloud, container, orchestrator, batch job."""

import re
from collections.abc import Iterable

from gpuagent.facts.surroundings import Surroundings

# The names that firmware of virtual machines gives itself, from systemd-detect-virt, and the clouds' own names.
_FIRMWARE = (
    ("amazon ec2", "kvm"),
    ("google", "kvm"),
    ("kvm", "kvm"),
    ("qemu", "kvm"),
    ("openstack", "kvm"),
    ("red hat", "kvm"),
    ("alibaba cloud", "kvm"),
    ("digitalocean", "kvm"),
    ("hetzner", "kvm"),
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("xen", "xen"),
    ("hvm domu", "xen"),
    ("microsoft corporation virtual machine", "hyperv"),
    ("bhyve", "bhyve"),
    ("parallels", "parallels"),
    ("apple virtualization", "apple"),
)

_CLOCK_SOURCES = (("kvm-clock", "kvm"), ("hyperv_clocksource", "hyperv"), ("xen", "xen"))

_CLOUD_VENDORS = (
    ("google", "gcp"),
    ("amazon", "aws"),
    ("alibaba cloud", "alibaba"),
    ("digitalocean", "digitalocean"),
    ("hetzner", "hetzner"),
    ("scaleway", "scaleway"),
    ("openstack", "openstack"),
)

# The first is the asset tag of every virtual machine of Azure (cloud-init's DataSourceAzure checks the same).
_ASSET_TAGS = {"7783-7084-3265-9085-8269-3286-77": "azure", "OracleCloud.com": "oracle"}

_AWS_INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")

# HPC runtimes pass a variable; a marker file alone would also exist where an image is only unpacked.
_RUNTIME_VARIABLES = (
    ("CH_RUNNING", "charliecloud"),
    ("APPTAINER_CONTAINER", "apptainer"),
    ("SINGULARITY_CONTAINER", "singularity"),
)

# Traces of container runtimes in the names of control groups and of the files that they mount.
_RUNTIME_TRACES = (
    ("crio", "cri-o"),
    ("/var/lib/docker/", "docker"),
    ("/docker/", "docker"),
    ("docker-", "docker"),
    ("libpod", "podman"),
    ("overlay-containers", "podman"),
    ("containerd", "containerd"),
    ("/lxc", "lxc"),
    ("enroot", "enroot"),
)

_MOUNTED_BY_RUNTIMES = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")

_SERVICE_ACCOUNTS = ("run/secrets/kubernetes.io/serviceaccount", "var/run/secrets/kubernetes.io/serviceaccount")

# Of each batch system, the variable that every job has, and others that identify it.
_JOB_VARIABLES = {
    "slurm": (
        "SLURM_JOB_ID",
        "SLURM_CLUSTER_NAME",
        "SLURM_ARRAY_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_JOB_NODELIST",
        "SLURM_JOB_USER",
    ),
    # Not LSB_HOSTS, which names a host once for each slot of the job there.
    "lsf": ("LSB_JOBID", "LSB_JOBNAME", "LSB_JOBINDEX", "LSB_QUEUE", "LSB_MCPU_HOSTS", "LSFUSER"),
}
_JOB_GROUPS = (("/slurm", "slurm"), ("/lsf/", "lsf"))
# LSF's value for a job that is no array; its indices begin at 1.
_NO_ARRAY = ("LSB_JOBINDEX", "0")


def _find(names: Iterable[tuple[str, str]], text: str) -> str | None:
    return next((answer for name, answer in names if name in text), None)


def detect_virtualization(surroundings: Surroundings) -> str | None:
    """Return none, kvm, vmware, …, `vm-other` for an unknown virtual machine, None where nothing shows it."""
    # Xen shows itself in sysfs; its first domain runs on the real machine.
    if "control_d" in surroundings.proc_text("xen/capabilities"):
        return "none"
    if hypervisor := surroundings.sys_text("hypervisor/type"):
        return hypervisor
    cpuinfo = surroundings.proc_text("cpuinfo")
    flags = _cpu_flags(cpuinfo)
    # x86 processors have a flag that every hypervisor sets; without it the machine is real, whatever firmware says.
    if flags and "hypervisor" not in flags:
        return "none"
    vendor, product = surroundings.dmi("sys_vendor"), surroundings.dmi("product_name")
    if product.endswith(".metal"):
        return "none"
    # Small hypervisors such as Firecracker have no firmware, but offer their clock.
    clocks = surroundings.sys_text("devices/system/clocksource/clocksource0/available_clocksource")
    if found := _find(_FIRMWARE, f"{vendor} {product}".lower()) or _find(_CLOCK_SOURCES, clocks):
        return found
    # POWER names its platform: PowerNV is the bare machine, pSeries a partition of it.
    if "pSeries" in cpuinfo and "PowerNV" not in cpuinfo:
        return "kvm" if "qemu" in cpuinfo else "powervm"
    if "hypervisor" in flags:
        return "vm-other"
    # Firmware that names a maker, none of them above, is that of a real machine.
    return "none" if vendor or "PowerNV" in cpuinfo else None


def _cpu_flags(cpuinfo: str) -> list[str]:
    """Return the flags of the first CPU; x86 alone has a line of this name."""
    for line in cpuinfo.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() == "flags":
            return flags.split()
    return []


def detect_cloud_provider(surroundings: Surroundings) -> str | None:
    """Return gcp, aws, azure, oracle, …, or None where the firmware names none; the network is not asked."""
    if provider := _ASSET_TAGS.get(surroundings.dmi("chassis_asset_tag")):
        return provider
    # Instances of EC2 on Xen name Xen as their vendor, and Amazon only as the maker of the firmware.
    names = (surroundings.dmi(name) for name in ("sys_vendor", "product_name", "bios_version"))
    return _find(_CLOUD_VENDORS, " ".join(names).lower())


def detect_instance_type(surroundings: Surroundings) -> str | None:
    """Return the machine type, such as g5.xlarge; only the firmware of EC2 names it."""
    product = surroundings.dmi("product_name")
    is_type = detect_cloud_provider(surroundings) == "aws" and _AWS_INSTANCE_TYPE.fullmatch(product)
    return product if is_type else None


def detect_container(surroundings: Surroundings) -> str:
    """Return docker, podman, apptainer, charliecloud, containerd, cri-o, …, `other` for an unknown one, or none."""
    for variable, runtime in _RUNTIME_VARIABLES:
        if variable in surroundings.environment:
            return runtime
    if surroundings.has(".singularity.d"):
        return "apptainer"
    is_in_pod = "KUBERNETES_SERVICE_HOST" in surroundings.environment
    mounted = [mount.root for mount in surroundings.mounts() if mount.point in _MOUNTED_BY_RUNTIMES]
    found = _find(_RUNTIME_TRACES, "\n".join([surroundings.proc_text("self/cgroup"), *mounted]))
    if not found and surroundings.has("run/.containerenv"):
        found = "podman"
    if not found and surroundings.has(".dockerenv"):
        found = "docker"
    if found:
        # CRI-O is made of Podman's libraries and leaves the same traces, but only runs pods.
        return "cri-o" if found == "podman" and is_in_pod else found
    # systemd-nspawn, LXC and podman declare themselves.
    declared = surroundings.environment.get("container") or surroundings.text("run/host/container-manager")
    return declared or ("other" if is_in_pod else "none")


def detect_orchestrator(surroundings: Surroundings) -> str:
    """Return slurm, lsf, openshift, kubernetes or none.

    Batch systems come first: in a pod, too, it is Slurm that gave the job.
    """
    environment, cgroup = surroundings.environment, surroundings.proc_text("self/cgroup")
    systems = (system for system, names in _JOB_VARIABLES.items() if names[0] in environment)
    if system := next(systems, None) or _find(_JOB_GROUPS, cgroup):
        return system
    is_in_pod = (
        "KUBERNETES_SERVICE_HOST" in environment
        or any(surroundings.has(folder) for folder in _SERVICE_ACCOUNTS)
        or "kubepods" in cgroup
        # Something may have removed the variables, and a group's path begins at the container's own.
        or "/kubelet/pods/" in surroundings.proc_text("self/mountinfo")
    )
    if not is_in_pod:
        return "none"
    # OpenShift adds the certificate of its service CA to every service account, and its variables to builds.
    is_openshift = any(surroundings.has(f"{folder}/service-ca.crt") for folder in _SERVICE_ACCOUNTS) or any(
        name.startswith("OPENSHIFT_") for name in environment
    )
    return "openshift" if is_openshift else "kubernetes"


def job_labels(surroundings: Surroundings) -> dict[str, str]:
    """Return labels that identify the agent's batch job, by its system's names in lower case; none outside of a job."""
    environment = surroundings.environment
    names = [name for names in _JOB_VARIABLES.values() if names[0] in environment for name in names]
    values = ((name, environment.get(name)) for name in names)
    return {name.lower(): value for name, value in values if value and (name, value) != _NO_ARRAY}
