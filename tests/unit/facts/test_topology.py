"""The links of a node, from a made-up sysfs and NVML's answers."""

from pathlib import Path
from typing import Any

import pytest

from gpuagent.facts import DevicePath, Link, Surroundings, collect_topology
from gpuagent.facts.topology import _classify
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, NOT_SUPPORTED, SECOND, NvmlRecording

ONE, TWO, CARD = "0000:0f:00.0", "0000:2d:00.0", "0000:10:00.0"
Outcomes = dict[str, list[dict[str, Any]]]


def add_device(sys: Path, address: str, way: str, **files: str) -> Path:
    """Make a PCI device below the bridges of `way`, and its entry in the list of all."""
    folder = sys / "devices" / way / address
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    listed = sys / "bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    (listed / address).symlink_to(folder)
    return folder


def surround(tmp_path: Path, outcomes: Outcomes) -> Surroundings:
    recording = NvmlRecording({"open()": [{"answer": None}], "*": [NOT_SUPPORTED], **outcomes})
    return Surroundings(root=tmp_path, proc=tmp_path / "proc", sys=tmp_path / "sys", open_nvml=recording.open)


def two_gpus() -> Outcomes:
    """Return the answers of two GPUs with two NVLinks between them and one to an NVSwitch; a fourth is down."""
    outcomes: Outcomes = {"devices()": [{"answer": [FIRST, SECOND]}]}
    for uuid, own, other in ((FIRST, ONE, TWO), (SECOND, TWO, ONE)):
        outcomes[f"nvmlDeviceGetPciInfo({uuid})"] = [{"answer": {"busId": f"0000{own.upper()}"}}]
        for link, end, kind in ((0, other, 0), (1, other, 0), (2, "0000:c1:00.0", 2)):
            outcomes[f"nvmlDeviceGetNvLinkState({uuid}, {link})"] = [{"answer": 1}]
            outcomes[f"nvmlDeviceGetNvLinkRemoteDeviceType({uuid}, {link})"] = [{"answer": kind}]
            outcomes[f"nvmlDeviceGetNvLinkRemotePciInfo({uuid}, {link})"] = [{"answer": {"busId": f"0000{end}"}}]
        outcomes[f"nvmlDeviceGetNvLinkState({uuid}, 3)"] = [{"answer": 0}]
    return outcomes


def test_nvlinks_numa_nodes_interfaces_and_the_paths_between_them_are_read(tmp_path: Path) -> None:
    sys = tmp_path / "sys"
    switch = "pci0000:0c/0000:0c:01.0/0000:0d:00.0"
    add_device(sys, ONE, f"{switch}/0000:0e:00.0", numa_node="0")
    add_device(sys, TWO, "pci0000:2a/0000:2a:01.0", numa_node="1")
    facts = {"numa_node": "0", "current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}
    card = add_device(sys, CARD, f"{switch}/0000:0e:01.0", **facts)
    for kind, name, file, text in (
        ("net", "ib0", "speed", "400000"),
        ("infiniband", "mlx5_0", "ports/1/rate", "400 Gb/sec (4X NDR)"),
        # Bridges have no device.
        ("net", "docker0", "speed", "10000"),
    ):
        path = sys / "class" / kind / name / file
        path.parent.mkdir(parents=True)
        path.write_text(f"{text}\n")
        if name != "docker0":
            (sys / "class" / kind / name / "device").symlink_to(card)
    links, paths = collect_topology(surround(tmp_path, two_gpus()))
    of_card = {
        "device_id": None,
        "pci_bus_id": CARD,
        "numa_node": 0,
        "network_bits_per_second": 400 * 10**9,
        "pcie_transfers_per_second": 32e9,
        "pcie_width": 16,
    }
    nvlinks = {"nvlinks_to_gpus": 2, "nvlinks_to_switches": 1}
    assert links == [
        Link(device_id=key(FIRST), name=None, pci_bus_id=ONE, numa_node=0, **nvlinks),
        Link(device_id=key(SECOND), name=None, pci_bus_id=TWO, numa_node=1, **nvlinks),
        Link(name="ib0", **of_card),  # type: ignore[arg-type]
        Link(name="mlx5_0", **of_card),  # type: ignore[arg-type]
    ]
    first = DevicePath(device_id=key(FIRST), peer_device_id=key(SECOND), peer_name=None, pcie_path="SYS", nvlinks=3)
    assert paths[0] == first
    assert [(path.device_id, path.peer_name, path.pcie_path, path.nvlinks) for path in paths[1:]] == [
        (key(FIRST), "ib0", "PIX", None),
        (key(FIRST), "mlx5_0", "PIX", None),
        (key(SECOND), "ib0", "SYS", None),
        (key(SECOND), "mlx5_0", "SYS", None),
    ]


def test_what_nothing_shows_is_absent(tmp_path: Path) -> None:
    links, paths = collect_topology(surround(tmp_path, {"devices()": [{"answer": [FIRST, SECOND]}]}))
    assert links == [Link(device_id=key(uuid), name=None, pci_bus_id=None, numa_node=None) for uuid in (FIRST, SECOND)]
    nothing = DevicePath(device_id=key(FIRST), peer_device_id=key(SECOND), peer_name=None, pcie_path=None, nvlinks=None)
    assert paths == [nothing]


UNKNOWN_TYPE = {"answer": 0xFF}
TYPE, ADDRESS = f"nvmlDeviceGetNvLinkRemoteDeviceType({FIRST}, ", f"nvmlDeviceGetNvLinkRemotePciInfo({FIRST}, "


@pytest.mark.parametrize(
    ("changes", "to_gpus", "to_switches", "between"),
    [
        # A link of unknown type: only its address may show the GPU.
        ({f"{TYPE}1)": NOT_SUPPORTED}, None, None, 3),
        ({f"{TYPE}1)": UNKNOWN_TYPE}, None, None, 3),
        ({f"{TYPE}2)": NOT_SUPPORTED, f"{ADDRESS}2)": NOT_SUPPORTED}, None, None, None),
        # A link to a GPU of unknown address may be one to this GPU, a link to a switch never.
        ({f"{ADDRESS}1)": NOT_SUPPORTED}, 2, 1, None),
        ({f"{ADDRESS}2)": NOT_SUPPORTED}, 2, 1, 3),
        # The other GPU has no link to a switch.
        ({f"nvmlDeviceGetNvLinkState({SECOND}, 2)": {"answer": 0}}, 2, 1, 2),
        ({f"nvmlDeviceGetPciInfo({SECOND})": NOT_SUPPORTED}, 2, 1, None),
        # All are down.
        ({f"nvmlDeviceGetNvLinkState({FIRST}, {link})": {"answer": 0} for link in range(3)}, 0, 0, 0),
    ],
)
def test_nvlinks_that_the_driver_does_not_describe_are_unknown_not_missing(
    changes: dict[str, dict[str, Any]],
    to_gpus: int | None,
    to_switches: int | None,
    between: int | None,
    tmp_path: Path,
) -> None:
    outcomes = {**two_gpus(), **{call: [outcome] for call, outcome in changes.items()}}
    links, paths = collect_topology(surround(tmp_path, outcomes))
    assert (links[0].nvlinks_to_gpus, links[0].nvlinks_to_switches) == (to_gpus, to_switches)
    assert [path.nvlinks for path in paths] == [between]


@pytest.mark.parametrize(
    ("vendor", "kind", "expected"),
    [("0x1014", "0x068000", (3, 0)), ("0x10de", "0x068000", (3, 3)), ("0x8086", "0x068000", (None, None))],
    ids=["power9", "nvswitch", "unknown"],
)
def test_nvlinks_of_drivers_that_report_no_types_are_told_apart_by_their_devices(
    tmp_path: Path, vendor: str, kind: str, expected: tuple[int | None, ...]
) -> None:
    recording = NvmlRecording.load("v100_power9")
    add_device(tmp_path / "sys", "0004:04:00.0", "pci0004:00/0004:00:00.0/0004:01:00.0/0004:02:04.0", numa_node="0")
    way = "pci0004:00/0004:00:00.0/0004:01:00.0/0004:02:05.0"
    add_device(tmp_path / "sys", "0004:05:00.0", way, vendor="0x10de", **{"class": "0x030200"})
    # The processor's ends are devices of its own: 1014:04ea.
    for function in range(3):
        add_device(tmp_path / "sys", f"0006:00:00.{function}", "pci0006:00", vendor=vendor, **{"class": kind})
    given = Surroundings(root=tmp_path, proc=tmp_path, sys=tmp_path / "sys", open_nvml=recording.open)
    (link,), _ = collect_topology(given)
    assert (link.nvlinks_to_gpus, link.nvlinks_to_switches) == expected
    assert link.numa_node == 0


def test_a_node_without_a_driver_has_its_interfaces(tmp_path: Path) -> None:
    card = add_device(tmp_path / "sys", CARD, "pci0000:00", numa_node="-1")
    # Such as virtio's: the device is one below that of PCI. Its speed is unknown.
    (card / "virtio0").mkdir()
    (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0/device").symlink_to(card / "virtio0")
    (tmp_path / "sys/class/net/eth0/speed").write_text("-1\n")
    links, paths = collect_topology(surround(tmp_path, {"open()": [{"error": 12, "words": "no library"}]}))
    assert links == [Link(device_id=None, name="eth0", pci_bus_id=CARD, numa_node=None)]
    assert paths == []


@pytest.mark.parametrize(
    ("first", "second", "nodes", "path"),
    [
        ("a/b/c/d/gpu", "a/b/c/e/nic", (0, 0), "PIX"),
        ("a/b/gpu.0", "a/b/gpu.1", (0, 0), "PIX"),
        ("a/b/c/d/gpu", "a/b/c/e/f/g/nic", (0, 0), "PXB"),
        ("a/b/gpu", "a/c/nic", (0, 0), "PHB"),
        ("a/b/gpu", "z/c/nic", (0, 0), "NODE"),
        ("a/b/gpu", "z/c/nic", (0, 1), "SYS"),
        ("a/b/gpu", "z/c/nic", (0, None), None),
        ("", "z/c/nic", (0, 1), None),
    ],
)
def test_paths_are_named_as_nvidia_smi_does(
    first: str, second: str, nodes: tuple[int | None, int | None], path: str | None
) -> None:
    ways = [[part for part in way.split("/") if part] for way in (first, second)]
    assert _classify(ways[0], ways[1], *nodes) == path
