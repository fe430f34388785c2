"""Where the agent keeps its files, for users without a home and on file systems without locks."""

import errno
import fcntl
import os
import pwd
import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from gpuagent import locations
from gpuagent.cli.node_agent import _check_node
from gpuagent.delivery.joined import Joined
from gpuagent.errors import LockedError
from gpuagent.locations import RUNTIME_VARIABLE, lock, make_private, runtime_directory, spool_directory
from gpuagent_collector.prices.price import default_prices_file
from gpuagent_collector.trust.tokens import TokenFile
from gpuagent_common import folders
from gpuagent_common.connection import configuration_folder, default_token_file
from gpuagent_common.errors import GpuAgentError, MisuseError

# No folder can be made below a file, not even by root.
NO_FOLDER = "/dev/null"
OWN = f"gpuagent-{os.geteuid()}"


def raising(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """What stands for /var/tmp, which is read-only, and /tmp."""
    parents = (Path(NO_FOLDER), tmp_path / "tmp")
    parents[1].mkdir()
    monkeypatch.setattr(folders, "TEMPORARY_PARENTS", parents)
    for name in ("XDG_CONFIG_HOME", "GPUAGENT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return parents


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_no_lock_that_another_process_holds(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", raising(OSError(number, os.strerror(number))))
    with pytest.raises(GpuAgentError, match=os.strerror(number)) as failed:
        lock(tmp_path / "lock", held="another agent")
    assert not isinstance(failed.value, LockedError)
    assert_names_all(failed.value)
    with pytest.raises(GpuAgentError, match=os.strerror(number)):
        TokenFile.beside(tmp_path / "token").revoke("nobody")


def test_a_lock_that_another_holds_is_one(tmp_path: Path) -> None:
    with lock(tmp_path / "lock", held="another agent"), pytest.raises(LockedError, match=str(os.getpid())):
        lock(tmp_path / "lock", held="another agent")


def assert_names_all(error: GpuAgentError) -> None:
    assert "--spool" in str(error)
    assert RUNTIME_VARIABLE in str(error)
    assert len(str(error)) <= 160 + len(str(error).split(": ")[0])


@pytest.mark.parametrize("environment", [{"HOME": NO_FOLDER}, {"XDG_STATE_HOME": NO_FOLDER}])
def test_the_spool_and_the_sockets_of_a_user_without_a_usable_home_are_in_a_place_that_can_be_written(
    environment: dict[str, str], places: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert spool_directory(None, environment=environment, mounts="") == places[1] / "gpuagent-12345"
    monkeypatch.undo()


def test_a_read_only_place_is_passed_over(places: tuple[Path, ...]) -> None:
    assert runtime_directory({}) == places[1] / OWN / "run"


def test_every_remedy_names_every_option(
    places: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "TEMPORARY_PARENTS", places[:1])
    failures: list[Callable[[], object]] = [
        lambda: spool_directory(None, environment={"XDG_STATE_HOME": NO_FOLDER}, mounts=""),
        lambda: runtime_directory({}),
        lambda: make_private(Path(NO_FOLDER) / "below"),
        lambda: make_private(link),
    ]
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for fail in failures:
        with pytest.raises(GpuAgentError) as failed:
            fail()
        assert_names_all(failed.value)


@pytest.mark.parametrize("home", [None, NO_FOLDER])
def test_a_user_without_a_usable_home_has_the_same_configuration_in_every_command(
    home: str | None, places: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", raising(KeyError("uid not found")))
    if home:
        monkeypatch.setenv("HOME", home)
    own = places[1] / OWN
    assert configuration_folder().is_relative_to(own)
    for path in (default_token_file(), Joined.usual().folder, default_prices_file()):
        assert path.is_relative_to(configuration_folder())
    assert folders.expand_user("~/runs.duckdb").name == "runs.duckdb"


def test_the_configuration_in_a_home_that_cannot_be_written_is_read(
    places: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path).is_relative_to(places[1]))
    assert configuration_folder().is_relative_to(places[1])
    (own := tmp_path / "home" / ".config" / "gpuagent").mkdir(parents=True)
    assert configuration_folder() == own


def test_a_configuration_that_another_user_may_have_made_is_refused(
    places: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", NO_FOLDER)
    (tmp_path / "theirs").mkdir()
    (places[1] / OWN).symlink_to(tmp_path / "theirs")
    with pytest.raises(GpuAgentError, match="XDG_CONFIG_HOME"):
        configuration_folder()


@pytest.mark.parametrize(("of_agent", "is_refused"), [("", False), ("mine", False), ("other", True)])
def test_only_an_agent_that_says_it_is_elsewhere_is_refused(of_agent: str, is_refused: bool, tmp_path: Path) -> None:
    client: Any = SimpleNamespace(status=lambda: SimpleNamespace(node_uuid=of_agent), close=lambda: None)
    config: Any = SimpleNamespace(node_id="mine")
    with pytest.raises(MisuseError) if is_refused else nullcontext():
        _check_node(client, config, tmp_path, "mine")


def test_the_network_file_system_s_remedy_names_the_option() -> None:
    with pytest.raises(GpuAgentError, match="--spool"):
        spool_directory(Path("/net/spool"), environment={}, mounts="server:/net /net nfs4 rw 0 0\n")
    assert "nfs4" in locations.NETWORK_FILE_SYSTEMS


# On a machine with other users, who may have come first.
OTHER_USER = 65_533

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def refused(folder: Path) -> str:
    with pytest.raises(GpuAgentError) as refusal:
        make_private(folder)
    return str(refusal.value)


def test_a_folder_is_made_and_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "spool"
    make_private(folder)
    folder.chmod(0o770)
    (folder / "run").mkdir(mode=0o700)
    make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_others_use_is_not_closed_to_them(tmp_path: Path) -> None:
    """`--spool /` made the machine's root its owner's alone: no other user could start a program."""
    tmp_path.chmod(0o755)
    (tmp_path / "usr").mkdir(mode=0o755)
    make_private(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    tmp_path.chmod(0o775)
    assert "users can use" in refused(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o775


def test_a_folder_of_all_users_is_not_closed_to_them(tmp_path: Path) -> None:
    """The agent of root must not take /tmp for itself."""
    tmp_path.chmod(0o1777)
    assert "folder of yours" in refused(tmp_path)
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
    assert "folder of yours" in refused(theirs)
    (tmp_path / "mine").mkdir()
    link.symlink_to(tmp_path / "mine")
    with pytest.raises(GpuAgentError, match="folder of yours"):
        runtime_directory({"GPUAGENT_RUNTIME_DIR": str(link)})
