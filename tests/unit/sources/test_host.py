from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.host import (
    HostCpu,
    HostDisk,
    HostFrequency,
    HostLoad,
    HostMemory,
    HostNetwork,
    memory_values,
    parse_meminfo,
    parse_net_dev,
    parse_stat,
    percentages,
    subtract_nodes,
)
from gpuagent.sources.source import Source, SourceContext, Value
from gpuagent.sources.support.files import exists
from gpuagent_common.ranges import find_impossible
from tests.support.sources import OpenSource
from tests.support.trees import NODES, instant, plant

STAT = "cpu  100 10 50 800 40 0 0 0 20 0\ncpu0 60 0 20 400 20 0 0 0 0 0\ncpu2 40 10 30 400 20 0 0 0 0 0\nintr 5 6\n"
LATER = "cpu  150 10 60 820 50 5 5 10 25 0\ncpu0 110 0 20 400 20 0 0 0 0 0\ncpu2 40 10 30 450 20 0 0 0 0 0\nintr 7 8\n"


COUNTERS = st.lists(st.integers(0, 2**40), min_size=4, max_size=10)


def values(source: Source, seconds: float, *, key: int | None = None) -> dict[str, Value]:
    return {
        name: value
        for reading in source.read(instant(seconds))
        if reading.key == key
        for name, value in reading.values.items()
    }


def test_shares_of_the_time_between_two_readings(tmp_path: Path, open_source: OpenSource) -> None:
    source = open_source(HostCpu, proc=plant(tmp_path, {"stat": STAT}))
    assert list(source.read(instant(0))) == []
    plant(tmp_path, {"stat": LATER})
    # 110 ticks passed: 50 user, 10 system, 20 idle, 10 waiting, 10 in interrupts, 10 stolen.
    assert values(source, 1) == {
        "cpu_percent": pytest.approx(100 * 80 / 110),
        "cpu_user_percent": pytest.approx(100 * 50 / 110),
        "cpu_system_percent": pytest.approx(100 * 20 / 110),
        "cpu_iowait_percent": pytest.approx(100 * 10 / 110),
        "cpu_steal_percent": pytest.approx(100 * 10 / 110),
    }


@pytest.mark.parametrize(
    ("before", "after", "shares"),
    [
        ("100 0 0 100 50 0 0 0", "150 0 0 150 49 0 0 0", (50.0, 50.0, 0.0, None, 0.0)),
        ("100 0 9 100 0 0 0 0", "150 0 0 150 0 0 0 0", (None, 50.0, None, 0.0, 0.0)),
        ("0 0 0 0", "1 0 0 3", (25.0, 25.0, None, None, None)),
        ("1 0 0 3", "1 0 0 3", (None, None, None, None, None)),
    ],
    ids=["iowait fell", "a busy counter fell", "an old kernel", "no time between"],
)
def test_shares_that_counters_do_not_show_are_absent(before: str, after: str, shares: tuple[float | None, ...]) -> None:
    ticks = [parse_stat(f"cpu {numbers}\n".encode()) for numbers in (before, after)]
    assert tuple(percentages(*ticks).values()) == shares


@given(COUNTERS, COUNTERS)
def test_shares_of_cpu_time_are_absent_or_between_0_and_100(before: list[int], after: list[int]) -> None:
    ticks = [parse_stat(f"cpu  {' '.join(map(str, numbers))}\n".encode()) for numbers in (before, after)]
    for share in percentages(*ticks).values():
        assert share is None or 0 <= share <= 100 + 1e-9


def test_an_impossible_path_does_not_exist() -> None:
    assert not exists(Path("/") / ("x" * 5000))
    assert not exists(Path("/a\0b"))


def test_a_node_without_proc_cannot_be_sampled(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="cannot open"):
        HostCpu(SourceContext(proc=tmp_path / "nowhere"))


def test_load_is_the_average_of_a_minute_and_frequency_the_mean_over_reporting_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_source: OpenSource
) -> None:
    monkeypatch.setattr(psutil, "getloadavg", lambda: (1.25, 0.5, 0.1))
    assert values(open_source(HostLoad), 0)["load_1m"] == 1.25
    cpus = "devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    plant(tmp_path, {cpus.format(0): "2000000\n", cpus.format(1): "3000000\n", cpus.format(2): "<unknown>\n"})
    assert values(open_source(HostFrequency, sys=tmp_path), 0) == {"cpu_frequency_mhz": 2500.0}


def test_memory_in_use_is_what_programs_cannot_get_or_absent() -> None:
    meminfo = "MemTotal: 1000 kB\nMemAvailable: 400 kB\nAnonPages: 300 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    assert memory_values(parse_meminfo(meminfo)) == {
        "memory_total_bytes": 1_024_000,
        "memory_used_bytes": 614_400,
        "memory_available_bytes": 409_600,
        "memory_anonymous_bytes": 307_200,
        "memory_cached_bytes": None,
        "swap_total_bytes": 0,
        "swap_used_bytes": 0,
    }
    # A container whose file system for /proc mixes its own total with the node's figures.
    mixed = memory_values(parse_meminfo("MemTotal: 1000 kB\nMemAvailable: 4000 kB\nSwapTotal: 1 kB\nSwapFree: 2 kB\n"))
    assert {"memory_used_bytes", "swap_used_bytes"} <= {each.column for each in find_impossible("host_samples", mixed)}
    # Kernels without MemAvailable.
    assert memory_values(parse_meminfo("MemTotal: 1000 kB\nMemFree: 10 kB\n"))["memory_used_bytes"] is None


def test_what_the_memory_of_a_gpu_does_not_show_is_not_known_of_the_host() -> None:
    whole = {"MemTotal": 100, "MemAvailable": 50, "Cached": 20, "AnonPages": 10, "SwapTotal": 5}
    part = "Node 255 MemTotal: 1 kB\nNode 255 AnonPages: 0 kB\n"
    assert subtract_nodes(whole, [part]) == {"MemTotal": 100 - 1024, "AnonPages": 10, "SwapTotal": 5}
    assert subtract_nodes(whole, [""]) == {"SwapTotal": 5}


def test_the_memory_of_gpus_is_no_memory_of_the_host(open_source: OpenSource) -> None:
    power9 = NODES / "power9"
    found = values(open_source(HostMemory, proc=power9 / "proc", sys=power9 / "sys"), 0)
    # Of the GPUs' four nodes: all, the free and the cached memory, and the anonymous memory.
    total, available, anonymous = 4 * 16_515_072, 4 * 15_755_824 + 1_000_000, 500_000
    assert found["memory_total_bytes"] == (598_023_296 - total) * 1024
    assert found["memory_available_bytes"] == (556_023_296 - available) * 1024
    assert found["memory_anonymous_bytes"] == (20_000_000 - anonymous) * 1024
    assert found["memory_cached_bytes"] == (12_000_000 - 1_000_000) * 1024


def test_a_node_with_processors_or_that_vanished_is_not_subtracted(tmp_path: Path, open_source: OpenSource) -> None:
    for number, cpulist in ((0, "0-71\n"), (2, "\n")):
        status = f"Node:      {number}\nStatus:    online\n"
        plant(tmp_path, {f"proc/driver/nvidia/gpus/000{number}:01:00.0/numa_status": status})
        plant(tmp_path, {f"sys/devices/system/node/node{number}/cpulist": cpulist})
    # On other machines the driver names none.
    plant(tmp_path, {"proc/driver/nvidia/gpus/0009:01:00.0/numa_status": "Node:      -1\nStatus:    disabled\n"})
    plant(tmp_path, {"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 400 kB\n"})
    plant(tmp_path, {"proc/meminfo": "MemTotal: 1000 kB\n"})
    source = open_source(HostMemory, proc=tmp_path / "proc", sys=tmp_path / "sys")
    assert values(source, 0)["memory_total_bytes"] == 1_024_000


DISKSTATS = """\
   8       0 sda 10 0 {read} 5 10 0 {written} 6 0 7 8
   8       1 sda1 10 0 {read} 5 10 0 {written} 6 0 7 8
 253       0 dm-0 10 0 {read} 5 10 0 {written} 6 0 7 8
   7       0 loop0 10 0 {read} 5 10 0 {written} 6 0 7 8
 259       1 nvme0c0n1 10 0 {read} 5 10 0 {written} 6 0 7 8
"""


def test_only_whole_disks_count(tmp_path: Path, open_source: OpenSource) -> None:
    sys = plant(
        tmp_path / "sys",
        {
            "block/sda/device/type": "0",
            "block/dm-0/size": "1",
            "block/loop0/size": "1",
            "block/nvme0c0n1/device/model": "x",
            "block/nvme0c0n1/hidden": "1\n",
        },
    )
    proc = plant(tmp_path / "proc", {"diskstats": DISKSTATS.format(read=0, written=0)})
    source = open_source(HostDisk, proc=proc, sys=sys)
    assert values(source, 0) == {"disk_read_bytes_per_second": None, "disk_write_bytes_per_second": None}
    plant(proc, {"diskstats": DISKSTATS.format(read=20, written=4)})
    assert values(source, 2) == {"disk_read_bytes_per_second": 5120.0, "disk_write_bytes_per_second": 1024.0}


NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 9999 1 0 0 0 0 0 0 9999 1 0 0 0 0 0 0
  eth0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0
"""


@pytest.mark.parametrize(
    ("folder", "received", "sent", "more", "rates"),
    [
        (".", 3000, 600, "", (1000.0, 50.0)),
        ("1", 3000, 600, "", (1000.0, 50.0)),
        (".", 10, 600, "", (None, 50.0)),
        (".", 1100, 500, "  eth1: 7777777 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n", (50.0, 0.0)),
    ],
    ids=["own", "a pod with the host's processes", "a counter that fell", "a new interface"],
)
def test_the_network_is_all_interfaces_but_loopback_and_no_resets(
    tmp_path: Path,
    folder: str,
    received: int,
    sent: int,
    more: str,
    rates: tuple[float | None, float],
    open_source: OpenSource,
) -> None:
    plant(tmp_path, {"net/dev": "eth0: 0 0 0 0 0 0 0 0 0 0\n"})
    plant(tmp_path / folder, {"net/dev": NET_DEV.format(received=1000, sent=500)})
    source = open_source(HostNetwork, proc=tmp_path)
    values(source, 0)
    plant(tmp_path / folder, {"net/dev": NET_DEV.format(received=received, sent=sent) + more})
    names = ("network_receive_bytes_per_second", "network_send_bytes_per_second")
    assert values(source, 2) == dict(zip(names, rates, strict=True))


def test_this_machines_memory_and_interfaces_agree_with_psutil(open_source: OpenSource) -> None:
    assert values(open_source(HostMemory), 0)["memory_total_bytes"] == psutil.virtual_memory().total
    interfaces = parse_net_dev(Path("/proc/net/dev").read_text())
    assert interfaces.keys() == psutil.net_io_counters(pernic=True).keys()


@pytest.mark.parametrize(("source_type", "file"), [(HostCpu, "stat"), (HostMemory, "meminfo"), (HostDisk, "diskstats")])
def test_a_malformed_file_is_a_failed_reading(
    tmp_path: Path, source_type: Callable[[SourceContext], Source], file: str, open_source: OpenSource
) -> None:
    source = open_source(source_type, proc=plant(tmp_path, {file: "8 0 nonsense\n"}))
    with pytest.raises(SourceError, match=file):
        list(source.read(instant(0)))
