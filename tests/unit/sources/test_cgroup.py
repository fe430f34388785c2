from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpuagent.errors import SourceUnavailableError
from gpuagent.sources.cgroup import Cgroup, throttled_percent
from gpuagent.sources.source import Value
from gpuagent.sources.support.cgroups import CpuUse, find_group, parse_cpu_max, parse_memberships, parse_mounts
from gpuagent.sources.support.files import parse_number
from tests.support.sources import OpenSource, Runs
from tests.support.trees import instant, mountinfo_at, plant

OpenCgroup = Callable[..., Cgroup]
MOUNTINFO = "proc/self/mountinfo"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1_MOUNTS = (
    "31 23 0:27 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "32 23 0:28 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)
V1_MEMORY = {
    "memory.usage_in_bytes": "5000\n",
    "memory.stat": "cache 1\nhierarchical_memory_limit 9223372036854771712\ntotal_cache 700\ntotal_rss 4000\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}
V1_CPU = {
    "cpu.stat": "nr_periods 10\nnr_throttled 0\nthrottled_time 0\n",
    "cpuacct.usage": "4000000000\n",
    "cpu.cfs_quota_us": "-1\n",
    "cpu.cfs_period_us": "100000\n",
}

V2_GROUP = {
    "cpu.stat": "usage_usec 5000000\nnr_periods 100\nnr_throttled 10\nthrottled_usec 7\n",
    "cpu.max": "150000 100000\n",
    "memory.current": "3000\n",
    "memory.stat": "anon 2000\nfile 900\nkernel 100\n",
    "memory.max": "max\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
}


@pytest.fixture
def open_cgroup(tmp_path: Path, open_source: OpenSource) -> OpenCgroup:
    """Open the source of a process with these groups and files, version 2 mounted unless they say otherwise."""

    def open_one(groups: str, files: Mapping[str, str], *runs: tuple[str, int]) -> Cgroup:
        mounted = {"proc/self/cgroup": groups, MOUNTINFO: V2_MOUNT, **files}
        plant(tmp_path, {path: mountinfo_at(tmp_path, text) for path, text in mounted.items()})
        return open_source(Cgroup, proc=tmp_path / "proc", runs=Runs(*runs))

    return open_one


def rows(source: Cgroup, seconds: float) -> list[dict[str, Value]]:
    """Return the rows as the sampler would make them: readings with the same key are one."""
    merged: dict[object, dict[str, Value]] = {}
    for reading in source.read(instant(seconds)):
        assert reading.table == "cgroup_samples"
        merged.setdefault(reading.key, {}).update(reading.values)
    return list(merged.values())


def group(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"sys/fs/cgroup/{folder}/{name}": text for name, text in files.items()}


def test_version_2_has_the_tightest_limit_of_all_ancestors(tmp_path: Path, open_cgroup: OpenCgroup) -> None:
    pod = {"memory.max": "8000\n", "cpu.max": "400000 100000\n"}
    source = open_cgroup("0::/pod/box\n", group("pod", pod) | group("pod/box", V2_GROUP))
    expected: dict[str, Value] = {
        "path": "/pod/box",
        "run_id": None,
        "cpu_cores": None,
        "cpu_limit_cores": 1.5,
        "cpu_throttled_percent": None,
        "memory_used_bytes": 3000,
        "memory_anonymous_bytes": 2000,
        "memory_file_bytes": 900,
        "memory_limit_bytes": 8000,
        "oom_kills": 1,
    }
    assert rows(source, 0) == [expected]
    plant(tmp_path, group("pod/box", {"cpu.stat": "usage_usec 8000000\nnr_periods 120\nnr_throttled 15\n"}))
    assert rows(source, 2) == [expected | {"cpu_cores": 1.5, "cpu_throttled_percent": 25.0}]


def test_the_root_is_a_containers_own_group_or_has_no_limits_and_no_memory(open_cgroup: OpenCgroup) -> None:
    source = open_cgroup("0::/\n", group(".", {"cpu.stat": "usage_usec 1000000\n"}))
    assert {name for name, value in rows(source, 0)[0].items() if value is not None} == {"path"}
    contained = open_cgroup("0::/\n", group(".", V2_GROUP))
    assert rows(contained, 0)[0]["memory_used_bytes"] == 3000


def v1_files(folder: str) -> dict[str, str]:
    return {**group(f"memory/{folder}", V1_MEMORY), **group(f"cpu,cpuacct/{folder}", V1_CPU)}


def test_version_1_in_a_container_is_below_the_mounted_group(tmp_path: Path, open_cgroup: OpenCgroup) -> None:
    source = open_cgroup(
        "5:memory:/docker/4f5a\n4:cpu,cpuacct:/docker/4f5a\n1:name=systemd:/docker/4f5a\n",
        {MOUNTINFO: V1_MOUNTS.format(root="/docker/4f5a"), **v1_files(".")},
    )
    rows(source, 0)
    plant(tmp_path, {"sys/fs/cgroup/cpu,cpuacct/cpuacct.usage": "4500000000\n"})
    assert rows(source, 1) == [
        {
            "path": "/docker/4f5a",
            "run_id": None,
            "cpu_cores": 0.5,
            "cpu_limit_cores": None,
            "cpu_throttled_percent": None,
            "memory_used_bytes": 5000,
            "memory_anonymous_bytes": 4000,
            "memory_file_bytes": 700,
            "memory_limit_bytes": None,
            "oom_kills": 2,
        }
    ]


def test_controllers_with_different_groups_in_version_1_are_different_rows(open_cgroup: OpenCgroup) -> None:
    source = open_cgroup(
        "5:memory:/slurm/job_1\n4:cpu,cpuacct:/\n",
        {MOUNTINFO: V1_MOUNTS.format(root="/"), **v1_files("slurm/job_1"), **v1_files(".")},
    )
    cpu, memory = rows(source, 0)
    assert (cpu["path"], memory["path"]) == ("/", "/slurm/job_1")
    assert "memory_used_bytes" not in cpu
    assert "cpu_cores" not in memory


def test_in_a_hybrid_each_controller_is_read_where_it_is(open_cgroup: OpenCgroup) -> None:
    mounts = V1_MOUNTS.format(root="/") + "33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    version_1 = group("memory/box", {"memory.usage_in_bytes": "5000\n"})
    unified = {"cpu.stat": "usage_usec 1\n", "cpu.max": "200000 100000\n", "memory.current": "1\n"}
    source = open_cgroup("5:memory:/box\n0::/box\n", {MOUNTINFO: mounts, **version_1, **group("unified/box", unified)})
    (row,) = rows(source, 0)
    assert (row["memory_used_bytes"], row["cpu_limit_cores"]) == (5000, 2.0)


def test_a_run_has_rows_of_its_own_only_in_another_group(open_cgroup: OpenCgroup) -> None:
    groups = group("agent", {"memory.current": "1\n"}) | group("box", {"memory.current": "2\n"})
    files = {"proc/11/cgroup": "0::/agent\n", "proc/22/cgroup": "0::/box\n", **groups}
    source = open_cgroup("0::/agent\n", files, ("inside", 11), ("elsewhere", 22), ("gone", 33))
    found = [(row["run_id"], row["path"], row["memory_used_bytes"]) for row in rows(source, 0)]
    assert found == [(None, "/agent", 1), ("elsewhere", "/box", 2)]


def test_a_process_that_is_moved_is_followed(tmp_path: Path, open_cgroup: OpenCgroup) -> None:
    groups = group("before", {"memory.current": "1\n"}) | group("after", {"memory.current": "2\n"})
    source = open_cgroup("0::/before\n", groups)
    assert rows(source, 0)[0]["memory_used_bytes"] == 1
    plant(tmp_path, {"proc/self/cgroup": "0::/after\n"})
    assert rows(source, 1)[0]["memory_used_bytes"] == 2


def test_without_a_visible_group_the_source_is_unavailable(open_cgroup: OpenCgroup) -> None:
    with pytest.raises(SourceUnavailableError, match="no control group"):
        open_cgroup("0::/box\n", {})


def test_a_group_outside_of_the_mounted_one_or_with_too_long_a_name_is_not_found(tmp_path: Path) -> None:
    mounts = parse_mounts(mountinfo_at(tmp_path, V2_MOUNT.replace(" / ", " /box ", 1)))
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    for outside in ("boxer", "../../elsewhere", f"box/{'a' * 300}"):
        assert find_group("cpu", parse_memberships(f"0::/{outside}\n"), mounts) is None
    inside = find_group("cpu", parse_memberships("0::/box\n"), mounts)
    assert inside is not None
    assert inside.directory == tmp_path / "sys/fs/cgroup"


def test_a_mount_point_with_a_space_is_found() -> None:
    (mount,) = parse_mounts("30 23 0:26 / /my\\040groups rw - cgroup2 none rw\n")
    assert mount.point == Path("/my groups")


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        *((parse_cpu_max, text, None) for text in ("max 100000\n", "", None, "5 0")),
        (parse_cpu_max, "150000 100000\n", 1.5),
        *((parse_number, text, None) for text in ("max\n", "-1", None)),
        *((parse_number, text, number) for text, number in (("0\n", 0), ("12", 12))),
    ],
)
def test_limits_are_parsed(parse: Callable[[str | None], float | None], text: str | None, value: float | None) -> None:
    assert parse(text) == value


def test_without_periods_throttling_is_absent() -> None:
    use = CpuUse(used_seconds=1, periods=5, throttled_periods=1, limit_cores=None)
    assert throttled_percent(use, use) is None


def test_this_machines_own_group_is_readable_or_comes_with_a_remedy(open_source: OpenSource) -> None:
    try:
        source = open_source(Cgroup)
    except SourceUnavailableError as error:
        assert error.remedy
        return
    assert all(reading.values["path"] for reading in source.read(instant(0)))


def test_a_run_whose_first_process_stays_outside_is_read_where_its_program_is(open_cgroup: OpenCgroup) -> None:
    # As Apptainer does: the supervisor (7) and its own process (8) stay, the program (9) is moved.
    processes = {
        "proc/7/cgroup": "0::/agent\n",
        "proc/7/task/7/children": "8 ",
        "proc/8/cgroup": "0::/agent\n",
        "proc/8/task/8/children": "9 ",
        "proc/9/cgroup": "0::/apptainer/9\n",
    }
    groups = group("agent", V2_GROUP) | group("apptainer/9", V2_GROUP)
    source = open_cgroup("0::/agent\n", {**processes, **groups}, ("r", 7))
    assert {(row["run_id"], row["path"]) for row in rows(source, 0)} == {(None, "/agent"), ("r", "/apptainer/9")}


def test_a_run_in_the_agents_own_group_has_none_of_its_own(open_cgroup: OpenCgroup) -> None:
    processes = {"proc/7/cgroup": "0::/agent\n", "proc/7/task/7/children": ""}
    source = open_cgroup("0::/agent\n", {**processes, **group("agent", V2_GROUP)}, ("r", 7))
    assert [row["run_id"] for row in rows(source, 0)] == [None]
