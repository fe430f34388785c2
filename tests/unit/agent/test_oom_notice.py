"""Where no notice can be had; tests of containers have the kernel give one."""

from pathlib import Path

import pytest

from gpuagent.runs.oom_notice import open_oom_notice

V1 = "30 20 0:26 / {point} rw - cgroup cgroup rw,memory\n"
V2 = "31 20 0:27 / {point} rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize("mount", [V1, V2, ""])
def test_without_a_group_to_listen_to_there_is_no_notice(tmp_path: Path, mount: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "self").mkdir()
    (tmp_path / "7/cgroup").write_text("4:memory:/box\n" if mount == V1 else "0::/box\n")
    (tmp_path / "self/mountinfo").write_text(mount.format(point=tmp_path / "mounted"))
    (tmp_path / "mounted/box").mkdir(parents=True)
    before = set(Path("/proc/self/fd").iterdir())
    assert open_oom_notice(7, tmp_path) is None
    assert open_oom_notice(8, tmp_path) is None
    assert set(Path("/proc/self/fd").iterdir()) == before
