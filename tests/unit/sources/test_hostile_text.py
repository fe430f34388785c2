"""What the kernel's files may hold that nobody expects; `python -m tests.fuzz kernel node` tries everything else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.sources.host_cpu import parse_stat, percentages
from gpuagent.sources.host_energy import HostEnergy
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.cgroups import find_group, parse_memberships, parse_mounts
from gpuagent.sources.support.files import exists
from tests.support.trees import plant


@given(
    st.lists(st.integers(0, 2**40), min_size=4, max_size=10), st.lists(st.integers(0, 2**40), min_size=4, max_size=10)
)
def test_shares_of_cpu_time_are_absent_or_between_0_and_100(before: list[int], after: list[int]) -> None:
    ticks = [parse_stat(f"cpu  {' '.join(map(str, numbers))}\n")["cpu"] for numbers in (before, after)]
    for share in percentages(*ticks).values():
        assert share is None or 0 <= share <= 100 + 1e-9


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_what_cannot_be_a_path_is_not_there(name: str) -> None:
    assert not exists(Path("/") / name)


def test_a_group_whose_name_is_longer_than_a_path_may_be_is_not_seen() -> None:
    mounts = parse_mounts("30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    assert find_group("cpu", parse_memberships(f"0::/{'a' * 300}\n"), mounts) is None


def test_a_rapl_range_that_is_no_number_counts_as_not_known(tmp_path: Path) -> None:
    zone = "class/powercap/intel-rapl:0"
    plant(tmp_path, {f"{zone}/name": "package-0", f"{zone}/energy_uj": "5", f"{zone}/max_energy_range_uj": "30 x"})
    HostEnergy(SourceContext(sys=tmp_path)).close()
