"""A node's /proc and /sys with one file changed: its sources fail in words, its rows can be sent, its facts are there.

An input's first line says which file, the rest is what it holds.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.facts import Surroundings
from gpuagent.facts.node import collect_node_facts
from gpuagent.sources.cgroup import Cgroup
from gpuagent.sources.host import HostCpu, HostDisk, HostFrequency, HostLoad, HostMemory, HostNetwork
from gpuagent.sources.host_energy import HostEnergy
from gpuagent.sources.process_tree import ProcessPss, ProcessTree
from gpuagent.sources.source import SourceContext
from tests.fuzz.records import encode_readings
from tests.fuzz.tally import Attempt
from tests.support.nvml_replay import NO_DRIVER
from tests.support.sources import Runs
from tests.support.trees import instant, mountinfo_at, plant

TOKENS = (
    b"cpu |cpu0 |cpux |MemTotal: | kB|0::/job|cgroup2| - |Pss: |max|-1|nan|18446744073709551616|9223372036854775808|"
    b"anon |usage_usec |0-99999999999999999999|1e999"
).split(b"|")

_SOURCES = (
    *(HostCpu, HostDisk, HostEnergy, HostFrequency, HostLoad, HostMemory, HostNetwork, Cgroup, ProcessPss, ProcessTree),
)
_STAT = "41 (a b) S 40 41 41 0 -1 64 100 0 0 0 50 20 0 0 20 0 3 0 1000 1000000 500 18446744073709551615 " + "0 " * 27
_FILES = {
    "proc/stat": "cpu  100 0 50 800 10 0 5 0 0 0\ncpu0 100 0 50 800 10 0 5 0 0 0\nintr 1\nbtime 1700000000\n",
    "proc/loadavg": "0.50 0.40 0.30 1/100 4242\n",
    "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 9 kB\nMemAvailable: 500 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
    "proc/diskstats": "   8       0 sda 100 0 2000 50 40 0 1000 60 0 70 110 0 0 0 0\n",
    "proc/net/dev": "Inter| Receive\n face |bytes\n lo: 1 1 0 0 0 0 0 0 1 1 0 0 0\n  eth0: 9 1 0 0 0 0 0 0 7 1 0 0 0\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon\nphysical id\t: 0\ncore id\t\t: 0\nflags\t: hypervisor\n",
    "proc/self/cgroup": "0::/job\n",
    "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
    "proc/self/status": "Name:\tx\nNSpid:\t40\nCpus_allowed_list:\t0-3\n",
    "proc/41/stat": _STAT + "\n",
    "proc/41/statm": "1000 500 100 10 0 300 0\n",
    "proc/41/io": "rchar: 1\nread_bytes: 4096\nwrite_bytes: 0\n",
    "proc/41/smaps_rollup": "00400000-7ffc r 00:00 0 [rollup]\nRss: 100 kB\nPss: 50 kB\nPss_Anon: 40 kB\n",
    "proc/41/cgroup": "0::/job\n",
    "proc/41/task/41/children": "",
    "proc/sys/kernel/osrelease": "6.1.0\n",
    "proc/sys/kernel/random/boot_id": "9f1b\n",
    "sys/fs/cgroup/job/cpu.stat": "usage_usec 5000\nnr_periods 10\nnr_throttled 1\n",
    "sys/fs/cgroup/job/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/job/memory.current": "4096\n",
    "sys/fs/cgroup/job/memory.max": "max\n",
    "sys/fs/cgroup/job/memory.stat": "anon 4096\nfile 0\n",
    "sys/fs/cgroup/job/memory.events": "oom 0\noom_kill 0\n",
    "sys/block/sda/device": "",
    "sys/block/sda/hidden": "0\n",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2400000\n",
    "sys/class/powercap/intel-rapl:0/name": "package-0\n",
    "sys/class/powercap/intel-rapl:0/energy_uj": "1000\n",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850\n",
    "sys/class/dmi/id/sys_vendor": "QEMU\n",
    "sys/class/dmi/id/product_name": "x\n",
    "etc/os-release": 'PRETTY_NAME="Debian"\n',
}


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Plant the tree, and change one file of it for each input."""
    files = {**_FILES, "proc/self/mountinfo": mountinfo_at(folder, _FILES["proc/self/mountinfo"])}
    plant(folder, files)
    names = sorted(files)
    previous, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(folder / "proc")
    places: dict[str, Any] = {"proc": folder / "proc", "sys": folder / "sys", "open_nvml": NO_DRIVER}
    context = SourceContext(**places, runs=Runs(("run", 40)))
    surroundings = Surroundings(**places, root=folder, environment={}, machine="x86_64")

    def attempt(data: bytes) -> None:
        line, _, content = data.partition(b"\n")
        name = line.decode(errors="replace")
        name = name if name in files else names[len(name) % len(names)]
        (folder / name).write_bytes(content)
        try:
            _sample(context)
            assert collect_node_facts(surroundings).container
        finally:
            (folder / name).write_text(files[name])

    try:
        yield attempt
    finally:
        psutil.PROCFS_PATH = previous


def _sample(context: SourceContext) -> None:
    for open_source in _SOURCES:
        with suppress(SourceUnavailableError):
            source = open_source(context)
            try:
                for seconds in (0, 10):
                    with suppress(SourceError):
                        encode_readings(source.read(instant(seconds)))
            finally:
                source.close()
