"""The links of the node, read once: NVLink and PCIe of its GPUs, its network interfaces, and the paths between them."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from gpuagent.facts.surroundings import Surroundings
from gpuagent.sources.support.nvml_api import Nvml, NvmlError
from gpuagent_common.keys import key

# NVML_NVLINK_MAX_LINKS of nvml.h, and its types of remote devices; POWER9 is the only processor with NVLinks.
_MOST_NVLINKS = 36
_GPU, _CPU, _SWITCH, _UNKNOWN = 0, 1, 2, 0xFF

# Of PCI devices.
_IBM, _NVIDIA, _CLASS_BRIDGE = "0x1014", "0x10de", "0x0680"

# The other end of an NVLink, its type and PCI address; None where the driver does not answer.
_End = tuple[int | None, str | None]

_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A GPU's or network interface's place, as in the table session_links; None where nothing shows the value."""

    device_id: int | None
    name: str | None
    pci_bus_id: str | None
    numa_node: int | None
    nvlinks_to_gpus: int | None = None
    nvlinks_to_switches: int | None = None
    network_bits_per_second: int | None = None
    pcie_transfers_per_second: float | None = None
    pcie_width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePath:
    """The path between a GPU and another one or a network interface, as in the table session_paths."""

    device_id: int | None
    peer_device_id: int | None
    peer_name: str | None
    pcie_path: str | None
    nvlinks: int | None


def collect_topology(surroundings: Surroundings) -> tuple[list[Link], list[DevicePath]]:
    """Return the links of GPUs and network interfaces, and the paths from each GPU; nothing is raised."""
    gpus: list[tuple[Link, Sequence[_End] | None]] = []
    with contextlib.suppress(NvmlError), contextlib.closing(surroundings.open_nvml()) as nvml:
        # A GPU's link, and the other ends of its active NVLinks; None: it has no NVLink.
        gpus = []
        for uuid in nvml.devices():
            bus_id = None
            with contextlib.suppress(NvmlError):
                bus_id = _sysfs_address(str(nvml.ask("nvmlDeviceGetPciInfo", uuid)["busId"]))
            link = Link(device_id=key(uuid), name=None, pci_bus_id=bus_id, numa_node=_numa_node(surroundings, bus_id))
            ends = _read_nvlinks(surroundings, nvml, uuid)
            kinds = Counter(kind for kind, _ in ends or ())
            if ends is not None and not kinds[None]:
                link = replace(link, nvlinks_to_gpus=kinds[_GPU], nvlinks_to_switches=kinds[_SWITCH])
            gpus.append((link, ends))
    interfaces = list(_read_interfaces(surroundings))
    paths = []
    for (gpu, ends), (other, other_ends) in combinations(gpus, 2):
        there, back = _count_towards(ends, other.pci_bus_id), _count_towards(other_ends, gpu.pci_bus_id)
        # Through NVSwitches, the GPU with fewer links to them is the limit.
        nvlinks = None if there is None or back is None else min(there, back)
        paths.append(_path(surroundings, gpu, other, nvlinks))
    paths += [_path(surroundings, gpu, interface, None) for gpu, _ in gpus for interface in interfaces]
    return [*(gpu for gpu, _ in gpus), *interfaces], paths


def _read_nvlinks(surroundings: Surroundings, nvml: Nvml, uuid: str) -> Sequence[_End] | None:
    """Return the other end of each active NVLink; None: the GPU has no NVLink."""
    ends: list[_End] = []
    for number in range(_MOST_NVLINKS):
        try:
            is_active = nvml.ask("nvmlDeviceGetNvLinkState", uuid, number)
        except NvmlError:
            # Beyond the last link, or there is none at all.
            return ends if number else None
        if not is_active:
            continue
        kind = address = None
        # Old drivers and virtual machines answer only one of the two, or none.
        with contextlib.suppress(NvmlError):
            answer = int(nvml.ask("nvmlDeviceGetNvLinkRemoteDeviceType", uuid, number))
            kind = None if answer == _UNKNOWN else answer
        with contextlib.suppress(NvmlError):
            address = _sysfs_address(str(nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", uuid, number)["busId"]))
        ends.append((_find_kind(surroundings, address) if kind is None else kind, address))
    return ends


def _find_kind(surroundings: Surroundings, address: str | None) -> int | None:
    """Return the type of an NVLink's other end by its PCI device, since drivers such as 440 do not report it."""
    vendor, kind = (surroundings.sys_text(f"bus/pci/devices/{address}/{name}") for name in ("vendor", "class"))
    if vendor == _NVIDIA:
        return _SWITCH if kind.startswith(_CLASS_BRIDGE) else _GPU
    return _CPU if vendor == _IBM else None


def _count_towards(ends: Sequence[_End] | None, peer: str | None) -> int | None:
    """Return the number of NVLinks that lead to the GPU at a PCI address, straight or through NVSwitches.

    None: the GPU has no NVLink, or nothing shows where one ends.
    """
    if ends is None or peer is None:
        return None
    others = [(kind, address) for kind, address in ends if address != peer]
    if any(kind is None or (kind == _GPU and address is None) for kind, address in others):
        return None
    return len(ends) - len(others) + sum(kind == _SWITCH for kind, _ in others)


def _read_interfaces(surroundings: Surroundings) -> Iterator[Link]:
    for kind in ("net", "infiniband"):
        for folder in sorted((surroundings.sys / "class" / kind).glob("*")):
            # Of a virtual machine's interface the device is one below that of PCI.
            found = [part for part in (folder / "device").resolve().parts if _PCI.fullmatch(part)]
            if not found:
                continue
            match = re.match(
                r"([0-9.]+) GT/s", surroundings.sys_text(f"bus/pci/devices/{found[-1]}/current_link_speed")
            )
            yield Link(
                device_id=None,
                name=folder.name,
                pci_bus_id=found[-1],
                numa_node=_numa_node(surroundings, found[-1]),
                network_bits_per_second=_network_rate(surroundings, kind, folder.name),
                pcie_transfers_per_second=(float(match[1]) * 1e9 if match else None),
                pcie_width=_number(surroundings.sys_text(f"bus/pci/devices/{found[-1]}/current_link_width")),
            )


def _network_rate(surroundings: Surroundings, kind: str, name: str) -> int | None:
    """Return the bits a second of the interface's link; None: it is down, or virtual."""
    if kind == "net":
        megabits = _number(surroundings.sys_text(f"class/net/{name}/speed"))
        return megabits * 10**6 if megabits else None
    # Such as 400 Gb/sec (4X NDR).
    match = re.match(r"([0-9.]+) Gb/sec", surroundings.sys_text(f"class/infiniband/{name}/ports/1/rate"))
    return round(float(match[1]) * 10**9) if match else None


def _number(text: str) -> int | None:
    """Return a positive number; sysfs writes −1, 0 or nothing for what it does not know."""
    return int(text) if text.isdecimal() and int(text) else None


def _sysfs_address(bus_id: str) -> str | None:
    """Return NVML's PCI address as sysfs has it: 0000:0f:00.0 for 00000000:0F:00.0."""
    address = bus_id.lower()[-12:]
    return address if _PCI.fullmatch(address) else None


def _numa_node(surroundings: Surroundings, bus_id: str | None) -> int | None:
    text = surroundings.sys_text(f"bus/pci/devices/{bus_id}/numa_node") if bus_id else ""
    # −1: the firmware does not say.
    return int(text) if text.isdecimal() else None


def _path(surroundings: Surroundings, gpu: Link, peer: Link, nvlinks: int | None) -> DevicePath:
    # The host bridge, the bridges below it, and the device; empty where sysfs does not show it.
    bridges: list[Sequence[str]] = []
    for link in (gpu, peer):
        device = surroundings.sys / "bus/pci/devices" / link.pci_bus_id if link.pci_bus_id else None
        if device is None or not device.exists():
            bridges.append(())
        else:
            parts = device.resolve().parts
            root = next((number for number, part in enumerate(parts) if re.match(r"pci[0-9a-f]{4}:", part)), None)
            bridges.append(() if root is None else parts[root:])
    return DevicePath(
        device_id=gpu.device_id,
        peer_device_id=peer.device_id,
        peer_name=peer.name,
        pcie_path=_classify(bridges[0], bridges[1], gpu.numa_node, peer.numa_node),
        nvlinks=nvlinks,
    )


def _classify(
    first: Sequence[str], second: Sequence[str], first_node: int | None, second_node: int | None
) -> str | None:
    """Return PIX, PXB, PHB, NODE or SYS, in the words of `nvidia-smi topo -m`; None: sysfs does not show it."""
    if not first or not second:
        return None
    if first[0] != second[0]:
        if first_node is None or second_node is None:
            return None
        return "NODE" if first_node == second_node else "SYS"
    common = next(
        (number for number, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    if common == 1:
        return "PHB"
    # A switch has a bridge above and one below for each device: together they count as one.
    below = max(len(first), len(second)) - common - 1
    return "PIX" if below <= 1 else "PXB"
