from pathlib import Path

import psutil
import pytest

from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.host_cpu import HostCpu, parse_stat, percentages
from gpuagent.sources.host_disk import HostDisk, parse_diskstats
from gpuagent.sources.host_frequency import HostFrequency
from gpuagent.sources.host_load import HostLoad
from gpuagent.sources.host_memory import HostMemory, memory_values, parse_meminfo
from gpuagent.sources.host_network import HostNetwork, parse_net_dev
from gpuagent.sources.source import Source, SourceContext, Value
from tests.support.trees import instant, plant

STAT = "cpu  100 10 50 800 40 0 0 0 20 0\ncpu0 60 0 20 400 20 0 0 0 0 0\ncpu1 40 10 30 400 20 0 0 0 0 0\nintr 5 6\n"
LATER = "cpu  150 10 60 820 50 5 5 10 25 0\ncpu0 110 0 20 400 20 0 0 0 0 0\ncpu1 40 10 30 450 20 0 0 0 0 0\nintr 7 8\n"


def values(source: Source, seconds: float, *, key: int | None = None) -> dict[str, Value]:
    return {
        name: value
        for reading in source.read(instant(seconds))
        if reading.key == key
        for name, value in reading.values.items()
    }


def test_cpu_shares_are_those_of_the_time_between_two_readings(tmp_path: Path) -> None:
    plant(tmp_path, {"stat": STAT})
    source = HostCpu(SourceContext(proc=tmp_path))
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
    source.close()


def test_each_core_has_a_row_where_asked_for(tmp_path: Path) -> None:
    plant(tmp_path, {"stat": STAT})
    source = HostCpu(SourceContext(proc=tmp_path, per_core=True))
    list(source.read(instant(0)))
    plant(tmp_path, {"stat": LATER})
    cores = [reading.values for reading in source.read(instant(1)) if reading.table == "core_samples"]
    assert cores == [{"core": 0, "cpu_percent": 100.0}, {"core": 1, "cpu_percent": 0.0}]
    source.close()


def test_an_iowait_that_fell_is_absent_and_leaves_the_others() -> None:
    before = parse_stat("cpu 100 0 0 100 50 0 0 0\n")["cpu"]
    after = parse_stat("cpu 150 0 0 150 49 0 0 0\n")["cpu"]
    assert percentages(before, after) == {"busy": 50.0, "user": 50.0, "system": 0.0, "iowait": None, "steal": 0.0}


def test_a_busy_counter_that_fell_makes_busy_absent() -> None:
    shares = percentages(parse_stat("cpu 100 0 9 100 0 0 0 0\n")["cpu"], parse_stat("cpu 150 0 0 150 0 0 0 0\n")["cpu"])
    assert (shares["busy"], shares["system"], shares["user"]) == (None, None, 50.0)


def test_states_that_an_old_kernel_lacks_are_absent() -> None:
    shares = percentages(parse_stat("cpu 0 0 0 0\n")["cpu"], parse_stat("cpu 1 0 0 3\n")["cpu"])
    assert shares == {"busy": 25.0, "user": 25.0, "system": None, "iowait": None, "steal": None}


def test_no_time_between_two_readings_gives_no_shares() -> None:
    ticks = parse_stat(STAT)["cpu"]
    assert set(percentages(ticks, ticks).values()) == {None}


def test_a_stat_that_makes_no_sense_is_a_failed_reading(tmp_path: Path) -> None:
    source = HostCpu(SourceContext(proc=plant(tmp_path, {"stat": "nonsense\n"})))
    with pytest.raises(SourceError, match="cannot make sense of"):
        source.read(instant(0))
    source.close()


def test_a_node_without_proc_cannot_be_sampled(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="cannot open"):
        HostCpu(SourceContext(proc=tmp_path / "nowhere"))


def test_load_is_the_average_of_a_minute(tmp_path: Path) -> None:
    source = HostLoad(SourceContext(proc=plant(tmp_path, {"loadavg": "1.25 0.50 0.10 2/345 6789\n"})))
    assert values(source, 0) == {"load_1m": 1.25}
    source.close()


def test_frequency_is_the_mean_over_the_cpus_that_tell_theirs(tmp_path: Path) -> None:
    cpus = "devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    plant(tmp_path, {cpus.format(0): "2000000\n", cpus.format(1): "3000000\n", cpus.format(2): "<unknown>\n"})
    source = HostFrequency(SourceContext(sys=tmp_path))
    assert values(source, 0) == {"cpu_frequency_mhz": 2500.0}
    source.close()


def test_memory_in_use_is_what_programs_cannot_get() -> None:
    meminfo = parse_meminfo(
        "MemTotal: 1000 kB\nMemAvailable: 400 kB\nAnonPages: 300 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    assert memory_values(meminfo) == {
        "memory_total_bytes": 1_024_000,
        "memory_used_bytes": 614_400,
        "memory_available_bytes": 409_600,
        "memory_anonymous_bytes": 307_200,
        "memory_cached_bytes": None,
        "swap_total_bytes": 0,
        "swap_used_bytes": 0,
    }


def test_memory_of_a_kernel_without_memavailable_has_no_use() -> None:
    assert memory_values(parse_meminfo("MemTotal: 1000 kB\nMemFree: 10 kB\n"))["memory_used_bytes"] is None


def test_this_machines_memory_is_what_psutil_says() -> None:
    source = HostMemory(SourceContext())
    assert values(source, 0)["memory_total_bytes"] == psutil.virtual_memory().total
    source.close()


DISKSTATS = """\
   8       0 sda 10 0 {read} 5 10 0 {written} 6 0 7 8
   8       1 sda1 10 0 {read} 5 10 0 {written} 6 0 7 8
 253       0 dm-0 10 0 {read} 5 10 0 {written} 6 0 7 8
   7       0 loop0 10 0 {read} 5 10 0 {written} 6 0 7 8
 259       1 nvme0c0n1 10 0 {read} 5 10 0 {written} 6 0 7 8
"""


def test_only_whole_disks_count(tmp_path: Path) -> None:
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
    source = HostDisk(SourceContext(proc=proc, sys=sys))
    assert values(source, 0) == {"disk_read_bytes_per_second": None, "disk_write_bytes_per_second": None}
    plant(proc, {"diskstats": DISKSTATS.format(read=20, written=4)})
    assert values(source, 2) == {"disk_read_bytes_per_second": 5120.0, "disk_write_bytes_per_second": 1024.0}
    source.close()


NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 9999 1 0 0 0 0 0 0 9999 1 0 0 0 0 0 0
  eth0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0
"""


def network(tmp_path: Path, received: int, sent: int) -> Path:
    return plant(tmp_path, {"net/dev": NET_DEV.format(received=received, sent=sent)})


def test_the_network_is_all_interfaces_but_loopback(tmp_path: Path) -> None:
    source = HostNetwork(SourceContext(proc=network(tmp_path, 1000, 500)))
    values(source, 0)
    network(tmp_path, 3000, 600)
    assert values(source, 2) == {"network_receive_bytes_per_second": 1000.0, "network_send_bytes_per_second": 50.0}
    source.close()


def test_in_a_pod_that_shares_the_hosts_processes_the_network_is_the_hosts(tmp_path: Path) -> None:
    plant(tmp_path, {"1/net/dev": NET_DEV.format(received=1000, sent=500), "net/dev": "eth0: 0 0 0 0 0 0 0 0 0 0\n"})
    source = HostNetwork(SourceContext(proc=tmp_path))
    values(source, 0)
    plant(tmp_path, {"1/net/dev": NET_DEV.format(received=3000, sent=600)})
    assert values(source, 2) == {"network_receive_bytes_per_second": 1000.0, "network_send_bytes_per_second": 50.0}
    source.close()


def test_a_network_counter_that_fell_is_absent_not_negative(tmp_path: Path) -> None:
    source = HostNetwork(SourceContext(proc=network(tmp_path, 1000, 500)))
    values(source, 0)
    network(tmp_path, 10, 600)
    assert values(source, 1) == {"network_receive_bytes_per_second": None, "network_send_bytes_per_second": 100.0}
    source.close()


def test_an_interface_that_appears_does_not_bring_its_past_with_it(tmp_path: Path) -> None:
    source = HostNetwork(SourceContext(proc=network(tmp_path, 1000, 500)))
    values(source, 0)
    plant(
        tmp_path,
        {"net/dev": NET_DEV.format(received=1100, sent=500) + "  eth1: 7777777 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n"},
    )
    assert values(source, 1)["network_receive_bytes_per_second"] == 100.0
    source.close()


def test_this_machines_counters_are_those_that_psutil_sees() -> None:
    interfaces = parse_net_dev(Path("/proc/net/dev").read_text())
    disks = parse_diskstats(Path("/proc/diskstats").read_text())
    assert interfaces.keys() == psutil.net_io_counters(pernic=True).keys()
    assert psutil.disk_io_counters(perdisk=True).keys() <= disks.keys()
