"""Whether the node is a virtual machine, and whose."""

from collections.abc import Callable

from gpuagent.facts.surroundings import Surroundings

# What the firmware of virtual machines calls itself, as systemd-detect-virt knows it, with the clouds' own names.
_DMI_NAMES = (
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


def detect_virtualization(surroundings: Surroundings) -> str | None:
    """Return none, kvm, vmware, …, `vm-other` for a virtual machine of unknown make, None where it cannot be told."""
    return next((answer for detect in _DETECTORS if (answer := detect(surroundings))), None)


def _by_processor(surroundings: Surroundings) -> str | None:
    """x86 processors have a flag that every hypervisor sets; without it the machine is real, whatever else says so."""
    flags = _cpu_flags(surroundings)
    return "none" if flags and "hypervisor" not in flags else None


def _by_firmware(surroundings: Surroundings) -> str | None:
    if surroundings.dmi("product_name").endswith(".metal"):
        return "none"
    names = " ".join(surroundings.dmi(name) for name in ("sys_vendor", "product_name")).lower()
    return next((answer for name, answer in _DMI_NAMES if name in names), None)


def _by_hypervisor(surroundings: Surroundings) -> str | None:
    """Xen shows itself in sysfs; its first domain runs on the real machine."""
    if "control_d" in surroundings.proc_text("xen/capabilities"):
        return "none"
    return surroundings.sys_text("hypervisor/type") or None


def _by_clock(surroundings: Surroundings) -> str | None:
    """Small hypervisors such as Firecracker have no firmware to ask, but offer their clock."""
    sources = surroundings.sys_text("devices/system/clocksource/clocksource0/available_clocksource")
    return next((answer for name, answer in _CLOCK_SOURCES if name in sources), None)


def _by_power(surroundings: Surroundings) -> str | None:
    """POWER tells its platform: PowerNV is the bare machine, pSeries a partition of it."""
    cpuinfo = surroundings.proc_text("cpuinfo")
    if "PowerNV" in cpuinfo:
        return "none"
    if "pSeries" not in cpuinfo:
        return None
    return "kvm" if "qemu" in cpuinfo else "powervm"


def _by_flag_alone(surroundings: Surroundings) -> str | None:
    return "vm-other" if "hypervisor" in _cpu_flags(surroundings) else None


def _by_named_firmware(surroundings: Surroundings) -> str | None:
    """Firmware that names a maker, none of them above, is that of a real machine."""
    return "none" if surroundings.dmi("sys_vendor") else None


def _cpu_flags(surroundings: Surroundings) -> list[str]:
    """Return the flags of the first CPU; x86 alone has a line of this name."""
    for line in surroundings.proc_text("cpuinfo").splitlines():
        name, _, flags = line.partition(":")
        if name.strip() == "flags":
            return flags.split()
    return []


_DETECTORS: tuple[Callable[[Surroundings], str | None], ...] = (
    _by_hypervisor,
    _by_processor,
    _by_firmware,
    _by_clock,
    _by_power,
    _by_flag_alone,
    _by_named_firmware,
)
