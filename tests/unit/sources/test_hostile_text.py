"""Whatever the kernel's files hold, a parser returns something of its type or raises ValueError, and nothing else."""

import contextlib
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent.facts.cpu import cpu_model, parse_cpuinfo
from gpuagent.facts.limits import allowed_cpus, count_cpus
from gpuagent.facts.node import os_name
from gpuagent.sources.host_cpu import parse_stat, percentages
from gpuagent.sources.host_disk import parse_diskstats
from gpuagent.sources.host_frequency import parse_khz
from gpuagent.sources.host_load import parse_loadavg
from gpuagent.sources.host_memory import memory_values, parse_meminfo
from gpuagent.sources.host_network import parse_net_dev
from gpuagent.sources.process_pss import parse_pss
from gpuagent.sources.process_tree import parse_io, parse_statm
from gpuagent.sources.support.cgroup_files import parse_cpu_max, parse_number
from gpuagent.sources.support.cgroups import find_group, parse_memberships, parse_mounts
from gpuagent.sources.support.dcgm import parse_fields, parse_gpus, parse_row
from gpuagent.sources.support.files import parse_flat
from gpuagent.sources.support.processes import parse_process_stat

PARSERS: tuple[Callable[[str], object], ...] = (
    parse_stat,
    parse_loadavg,
    parse_khz,
    parse_meminfo,
    parse_diskstats,
    parse_net_dev,
    parse_process_stat,
    parse_statm,
    parse_io,
    parse_pss,
    parse_flat,
    parse_number,
    parse_cpu_max,
    parse_memberships,
    parse_mounts,
    parse_gpus,
    parse_fields,
    lambda text: parse_row(text, [1002]),
    parse_cpuinfo,
    os_name,
    allowed_cpus,
    count_cpus,
    lambda text: cpu_model(parse_cpuinfo(text)),
    lambda text: memory_values(parse_meminfo(text)),
    lambda text: find_group("cpu", parse_memberships(text), parse_mounts(text)),
)

_WORDS = st.sampled_from(
    [
        "cpu ",
        "cpu0 ",
        "MemTotal:",
        "0::",
        "/",
        "..",
        "cgroup",
        " - ",
        "(",
        ")",
        ":",
        "Pss:",
        "kB",
        "max",
        "read_bytes: ",
        "\n",
    ]
)
_TEXT = st.lists(st.one_of(_WORDS, st.integers().map(str), st.text(max_size=5)), max_size=40).map(" ".join)


@settings(max_examples=400)
@given(text=_TEXT)
def test_a_parser_survives_any_text(text: str) -> None:
    for parse in PARSERS:
        with contextlib.suppress(ValueError):
            parse(text)


@given(
    st.lists(st.integers(0, 2**40), min_size=4, max_size=10), st.lists(st.integers(0, 2**40), min_size=4, max_size=10)
)
def test_shares_of_cpu_time_are_absent_or_between_0_and_100(before: list[int], after: list[int]) -> None:
    ticks = [parse_stat(f"cpu  {' '.join(map(str, numbers))}\n")["cpu"] for numbers in (before, after)]
    for share in percentages(*ticks).values():
        assert share is None or 0 <= share <= 100 + 1e-9
