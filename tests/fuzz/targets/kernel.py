"""The kernel's files: every parser returns something of its type or raises ValueError, and nothing else.

An input's first byte says which parser gets the rest.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuagent.facts.node import cpu_model, os_name, parse_cpuinfo
from gpuagent.sources.host import memory_values, parse_meminfo, parse_net_dev, parse_stat
from gpuagent.sources.process_tree import parse_io, parse_statm
from gpuagent.sources.support.cgroups import find_group, parse_cpu_max, parse_memberships, parse_mounts
from gpuagent.sources.support.files import parse_flat, parse_number
from gpuagent.sources.support.gpu_processes import parse_place
from gpuagent.sources.support.processes import parse_process_stat
from tests.fuzz.tally import Attempt

TOKENS = (
    b"cpu |cpu0 |MemTotal:| kB|0::/|..|cgroup2| - |(|)|Pss:|max|-1|read_bytes: |write_bytes: |model name\t: |"
    b"Cpus_allowed_list:\t|0-3,8|PRETTY_NAME=|\\040|18446744073709551615|1_0|\xd9\xa3|nan|1e999|"
    b"kubepods-pod1_2.slice|eth0:1:"
).split(b"|")

# By the first byte modulo their number.
_PARSERS: tuple[Callable[[str], object], ...] = (
    lambda text: parse_stat(text.encode()),
    lambda text: memory_values(parse_meminfo(text)),
    parse_net_dev,
    parse_process_stat,
    parse_statm,
    parse_io,
    parse_flat,
    parse_number,
    parse_cpu_max,
    lambda text: find_group("cpu", parse_memberships(text), parse_mounts(text)),
    parse_place,
    lambda text: cpu_model(parse_cpuinfo(text)),
    os_name,
)


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Parse."""

    def attempt(data: bytes) -> None:
        parse = _PARSERS[data[0] % len(_PARSERS)] if data else parse_number
        with suppress(ValueError):
            parse(data[1:].decode(errors="replace"))

    yield attempt
