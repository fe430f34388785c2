"""The node's processors, memory, disks and network, from /proc and /sys."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from gpuagent.clock import Instant
from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.source import Computed, Lane, Reading, SourceContext, Value
from gpuagent.sources.support.files import (
    FileSource,
    OptionalFile,
    exists,
    open_needed,
    parse_number,
    read_parsed,
    read_psutil,
    read_text,
)
from gpuagent.sources.support.rates import Rates, total

# The states of a CPU, in the file's order. Guests' time is part of user and nice already.
_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

# The columns, and the positions of the states that each adds up.
_SHARES = tuple(
    (column, tuple(map(_STATES.index, states)))
    for column, states in (
        ("cpu_percent", ("user", "nice", "system", "irq", "softirq", "steal")),
        ("cpu_user_percent", ("user", "nice")),
        ("cpu_system_percent", ("system", "irq", "softirq")),
        ("cpu_iowait_percent", ("iowait",)),
        ("cpu_steal_percent", ("steal",)),
    )
)

# The first line, with at least the first four states, of which the kernel always has all.
_BEGIN = re.compile(rb"cpu(?: +[0-9]+){4,} *$", flags=re.MULTILINE)

# CPU time by state since boot, in the kernel's ticks; an old kernel lacks the last states.
Ticks = Sequence[int]


def parse_stat(text: bytes) -> Ticks:
    """Return the ticks of all CPUs together, from the first line. Raises ValueError if this is not a /proc/stat."""
    if not _BEGIN.match(text):
        raise ValueError("it does not begin with the CPUs' times")
    return [int(number) for number in text.partition(b"\n")[0].split()[1 : 1 + len(_STATES)]]


def percentages(before: Ticks, after: Ticks) -> dict[str, float | None]:
    """Return the shares of the time between two readings in percent, by column.

    A counter that fell makes those shares None that need it, and so does one that the kernel lacks, except for
    `cpu_percent`, the share that was not idle.
    """
    spent = [late - early if late >= early else None for early, late in zip(before, after, strict=False)]
    all_ticks = sum(ticks for ticks in spent if ticks is not None)
    shares: dict[str, float | None] = {}
    for column, positions in _SHARES:
        known = len(spent)
        parts = [spent[position] for position in positions if position < known]
        is_known = all_ticks and None not in parts and (len(parts) == len(positions) or column == "cpu_percent")
        shares[column] = 100 * sum(filter(None, parts)) / all_ticks if is_known else None
    return shares


class HostCpu(FileSource):
    """CPU use of the whole node.

    The use of the node's CPUs, from /proc/stat. `top` and `mpstat` show the same.

    psutil.cpu_times() costs half as much again at the agent's full rate, and loses the CPUs' numbers where one is
    offline.
    """

    name = "host_cpu"
    lane = Lane.FAST
    # The kernel counts in ticks of 10 ms: shorter windows hold too few.
    max_rate_hz = 10.0
    file = "stat"

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._before: bytes | None = None

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return a row; nothing the first time."""
        try:
            after = self._file.read_begin()
        except OSError as error:
            raise SourceError(f"cannot read {self._file.path}: {error.strerror}") from error
        if not _BEGIN.match(after):
            raise SourceError(f"cannot parse {self._file.path}: it does not begin with the CPUs' times")
        before, self._before = self._before, after
        return () if before is None else (Reading("host_samples", Computed(_shares, before, after)),)


def _shares(before: bytes, after: bytes) -> Mapping[str, Value]:
    return percentages(parse_stat(before), parse_stat(after))


class HostLoad(FileSource):
    """The node's load average over one minute, in tasks.

    The number of tasks that wanted to run, from /proc/loadavg. `uptime` shows the same.
    """

    name = "host_load"
    lane = Lane.FAST
    # The kernel computes it every 5 s.
    max_rate_hz = 0.2
    file = "loadavg"

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the load."""
        yield Reading(table="host_samples", values={"load_1m": read_psutil(psutil.getloadavg, self.file)[0]})


class HostFrequency:
    """Mean clock over the node's CPUs.

    The CPUs' clock, from sysfs cpufreq.

    psutil.cpu_freq() reads three files a CPU, and in virtual machines returns the nominal clock of /proc/cpuinfo as
    if it were measured.

    On the slow lane: kernels between 4.16 and 5.16 sleep 10 ms and more for an answer, once for each CPU.
    """

    name = "host_frequency"
    lane = Lane.SLOW
    max_rate_hz = 0.1

    def __init__(self, context: SourceContext) -> None:
        paths = sorted(context.sys.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
        if not paths:
            raise SourceUnavailableError("the kernel has no CPU frequency (no cpufreq), as usual in virtual machines")
        self._files = [OptionalFile(path) for path in paths]

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the mean over the CPUs that report theirs; an offline CPU does not."""
        khz = [clock for file in self._files if (clock := parse_number(file.read())) is not None]
        if not khz:
            raise SourceError("no CPU reports its frequency")
        yield Reading(table="host_samples", values={"cpu_frequency_mhz": sum(khz) / len(khz) / 1000})

    def close(self) -> None:
        """Close the CPUs' files."""
        for file in self._files:
            file.close()


_WANTED = re.compile(
    r"^(?:Node +[0-9]+ )?(MemTotal|MemAvailable|MemFree|AnonPages|Cached|FilePages|SwapTotal|SwapFree"
    r"|Active\(file\)|Inactive\(file\)): +([0-9]{1,18}) kB$",
    flags=re.MULTILINE,
)

# What belongs to no NUMA node.
_OF_MACHINE = frozenset({"SwapTotal", "SwapFree"})


def parse_meminfo(text: str) -> dict[str, int]:
    """Return the lines that are used, in bytes; those that an old kernel lacks are left out.

    Raises ValueError: this is not a /proc/meminfo.
    """
    numbers = _read_lines(text)
    if "MemTotal" not in numbers:
        raise ValueError("it has no MemTotal")
    return numbers


def _read_lines(text: str) -> dict[str, int]:
    return {name: int(kibibytes) * 1024 for name, kibibytes in _WANTED.findall(text)}


def find_gpu_nodes(proc: Path, sys: Path) -> list[Path]:
    """Return the meminfo of each NUMA node that is the memory of a GPU, as on POWER9 and Grace.

    The kernel counts it as the node's once the driver has brought it online. hwloc finds these nodes in the same way.
    """
    texts = (read_text(file) or "" for file in sorted((proc / "driver/nvidia/gpus").glob("*/numa_status")))
    numbers = (match[1] for text in texts if (match := re.match(r"Node: +([0-9]+)\n", text)))
    nodes = (sys / "devices/system/node" / f"node{number}" for number in dict.fromkeys(numbers))
    # A node with processors is theirs, whatever the driver names.
    return [node / "meminfo" for node in nodes if read_text(node / "cpulist") == "\n"]


def subtract_nodes(meminfo: Mapping[str, int], nodes: Iterable[str]) -> dict[str, int]:
    """Return the numbers of /proc/meminfo without those of NUMA nodes, given as the texts of their meminfo.

    What a node does not show is left out.
    """
    rest = dict(meminfo)
    for part in map(_read_lines, nodes):
        # A NUMA node has no MemAvailable; the kernel computes it from these.
        available = [part[name] for name in ("MemFree", "Active(file)", "Inactive(file)") if name in part]
        if len(available) == 3:
            part["MemAvailable"] = sum(available)
        if "FilePages" in part:
            part["Cached"] = part["FilePages"]
        for name in rest.keys() - _OF_MACHINE:
            if name in part:
                rest[name] -= part[name]
            else:
                del rest[name]
    return rest


def read_memory(proc: Path, sys: Path) -> Mapping[str, int]:
    """Return the numbers of /proc/meminfo without the GPUs' memory; none where the kernel does not show them."""
    try:
        meminfo = parse_meminfo(read_text(proc / "meminfo") or "")
    except ValueError:
        return {}
    return subtract_nodes(meminfo, (read_text(node) or "" for node in find_gpu_nodes(proc, sys)))


def memory_values(meminfo: Mapping[str, int]) -> dict[str, Value]:
    """Return the columns of host_samples, in bytes; where more is free than there is, the rest is negative, not 0."""

    def difference(whole: str, part: str) -> int | None:
        return meminfo[whole] - meminfo[part] if {whole, part} <= meminfo.keys() else None

    return {
        "memory_total_bytes": meminfo.get("MemTotal"),
        "memory_used_bytes": difference("MemTotal", "MemAvailable"),
        "memory_available_bytes": meminfo.get("MemAvailable"),
        "memory_anonymous_bytes": meminfo.get("AnonPages"),
        "memory_cached_bytes": meminfo.get("Cached"),
        "swap_total_bytes": meminfo.get("SwapTotal"),
        "swap_used_bytes": difference("SwapTotal", "SwapFree"),
    }


class HostMemory(FileSource):
    """Memory and swap of the whole node, without its GPUs' memory.

    The node's memory and swap, from /proc/meminfo. `free` shows the same, but counts the memory of a GPU that is a NUMA
    node.

    psutil.virtual_memory() has no anonymous memory, and counts reclaimable slabs as cache.
    """

    name = "host_memory"
    lane = Lane.FAST
    max_rate_hz = 2.0
    file = "meminfo"

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._gpus = [OptionalFile(path) for path in find_gpu_nodes(context.proc, context.sys)]

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the memory in use and the rest."""
        meminfo = read_parsed(self._file, parse_meminfo)
        gpus = [text for file in self._gpus if (text := file.read())]
        yield Reading(table="host_samples", values=memory_values(subtract_nodes(meminfo, gpus)))

    def close(self) -> None:
        """Close the files."""
        super().close()
        for file in self._gpus:
            file.close()


class HostDisk(FileSource):
    """Bytes a second to and from the node's whole disks together.

    The traffic of the node's disks, from /proc/diskstats. `iostat` shows the same.
    """

    name = "host_disk"
    lane = Lane.FAST
    max_rate_hz = 0.5
    file = "diskstats"

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._sys = context.sys
        self._whole: dict[str, bool] = {}
        self._read: Rates[str] = Rates()
        self._written: Rates[str] = Rates()

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the rates since the reading before; a disk counts from its second reading on."""
        # Without nowrap=False psutil would hide that a counter was reset.
        counters = read_psutil(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False), self.file)
        for name in counters.keys() - self._whole.keys():
            # Partitions, and devices made of others (dm, md, loop, zram, the paths of a multipath disk), would count
            # the same bytes twice; psutil leaves out partitions only.
            entry = self._sys / "block" / name
            self._whole[name] = exists(entry / "device") and (read_text(entry / "hidden") or "0").strip() == "0"
        disks = {name: count for name, count in counters.items() if self._whole[name]}
        read = self._read.per_second({name: disk.read_bytes for name, disk in disks.items()}, now)
        written = self._written.per_second({name: disk.write_bytes for name, disk in disks.items()}, now)
        values = {"disk_read_bytes_per_second": total(read), "disk_write_bytes_per_second": total(written)}
        yield Reading(table="host_samples", values=values)


def parse_net_dev(text: str) -> dict[str, tuple[int, int]]:
    """Return (bytes received, bytes sent) of each interface; the heading and incomplete lines are left out.

    Raises ValueError: this is not a /proc/net/dev.
    """
    interfaces: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        # An alias such as eth0:1 has a colon of its own.
        name, colon, rest = line.rpartition(":")
        numbers = rest.split()
        if colon and len(numbers) > 8:
            interfaces[name.strip()] = (int(numbers[0]), int(numbers[8]))
    return interfaces


class HostNetwork:
    """Bytes a second on all interfaces but loopback, in the network namespace of the first visible process.

    The traffic of the node's network interfaces, from /proc/net/dev. `ip -s link` shows the same.

    That is the agent's own, except in a pod that shares the host's processes and not its network. There
    psutil.net_io_counters() would return the pod's network.
    """

    name = "host_network"
    lane = Lane.FAST
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        # Where other users' processes are hidden, the first one is.
        first = context.proc / "1/net/dev"
        self._file = open_needed(first if exists(first) else context.proc / "net/dev")
        self._received: Rates[str] = Rates()
        self._sent: Rates[str] = Rates()

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the rates since the reading before; an interface counts from its second reading on."""
        interfaces = read_parsed(self._file, parse_net_dev)
        interfaces.pop("lo", None)
        received = self._received.per_second({name: received for name, (received, _) in interfaces.items()}, now)
        sent = self._sent.per_second({name: sent for name, (_, sent) in interfaces.items()}, now)
        values = {"network_receive_bytes_per_second": total(received), "network_send_bytes_per_second": total(sent)}
        yield Reading(table="host_samples", values=values)

    def close(self) -> None:
        """Close /proc/net/dev."""
        self._file.close()
