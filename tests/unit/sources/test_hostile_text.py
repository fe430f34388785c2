"""Unexpected content of the kernel's files; `python -m tests.fuzz kernel node` tries everything else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.sources.host_cpu import parse_stat, percentages
from gpuagent.sources.host_energy import HostEnergy
from gpuagent.sources.support.cgroups import find_group, parse_memberships, parse_mounts
from gpuagent.sources.support.files import exists
from tests.support.sources import OpenSource
from tests.support.trees import plant


@given(
    st.lists(st.integers(0, 2**40), min_size=4, max_size=10), st.lists(st.integers(0, 2**40), min_size=4, max_size=10)
)
def test_shares_of_cpu_time_are_absent_or_between_0_and_100(before: list[int], after: list[int]) -> None:
    ticks = [parse_stat(f"cpu  {' '.join(map(str, numbers))}\n")["cpu"] for numbers in (before, after)]
    for share in percentages(*ticks).values():
        assert share is None or 0 <= share <= 100 + 1e-9


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_an_impossible_path_does_not_exist(name: str) -> None:
    assert not exists(Path("/") / name)


def test_a_group_with_too_long_a_name_is_ignored() -> None:
    mounts = parse_mounts("30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    assert find_group("cpu", parse_memberships(f"0::/{'a' * 300}\n"), mounts) is None


def test_a_malformed_rapl_range_counts_as_unknown(tmp_path: Path, open_source: OpenSource) -> None:
    zone = "class/powercap/intel-rapl:0"
    plant(tmp_path, {f"{zone}/name": "package-0", f"{zone}/energy_uj": "5", f"{zone}/max_energy_range_uj": "30 x"})
    open_source(HostEnergy, sys=tmp_path)
