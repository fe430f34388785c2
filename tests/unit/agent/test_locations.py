"""Folders of the agent on a machine with other users, who may have come first."""

import os
import stat
from pathlib import Path

import pytest

from gpuagent.locations import lock, make_private, runtime_directory
from gpuagent_common.errors import GpuAgentError

OTHER_USER = 65_533

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def refused(folder: Path) -> str:
    with pytest.raises(GpuAgentError) as refusal:
        make_private(folder)
    return str(refusal.value)


def test_a_folder_is_made_and_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "spool"
    make_private(folder)
    folder.chmod(0o750)
    (folder / "link").symlink_to(tmp_path)
    make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_of_all_users_is_not_closed_to_them(tmp_path: Path) -> None:
    """The agent of root must not take /tmp for itself."""
    tmp_path.chmod(0o1777)
    assert "is not a folder of yours" in refused(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_link_that_others_could_leave_is_not_followed(tmp_path: Path, mode: int) -> None:
    mine, spool = tmp_path / "mine", tmp_path / "spool"
    mine.write_text("kept")
    spool.mkdir()
    spool.chmod(mode)
    make_private(spool)
    spool.chmod(mode)
    (spool / "lock").symlink_to(mine)
    assert "spool/lock" in refused(spool)
    with pytest.raises(GpuAgentError, match="cannot open"):
        lock(spool / "lock", held="held")
    assert mine.read_text() == "kept"


@needs_root
def test_what_another_user_made_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "spool.sqlite").touch()
    os.chown(tmp_path / "spool.sqlite", OTHER_USER, OTHER_USER)
    assert "spool.sqlite" in refused(tmp_path)
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.mkdir()
    os.chown(theirs, OTHER_USER, OTHER_USER)
    assert "is not a folder of yours" in refused(theirs)
    (tmp_path / "mine").mkdir()
    link.symlink_to(tmp_path / "mine")
    with pytest.raises(GpuAgentError, match="is not a folder of yours"):
        runtime_directory({"GPUAGENT_RUNTIME_DIR": str(link)})
