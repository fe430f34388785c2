"""Folders of the agent: the spool on a local disk, lock and socket where only its user may look."""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from gpuagent.errors import LockedError
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.folders import first_usable, home_folder, is_usable, temporary_folders

SPOOL_VARIABLE = "GPUAGENT_SPOOL_DIR"
RUNTIME_VARIABLE = "GPUAGENT_RUNTIME_DIR"

# The options that name other folders.
REMEDY = f"--spool DIR and {RUNTIME_VARIABLE}=DIR"

# The answers of flock where another process has the lock; others, such as ENOLCK, are faults of the file system.
_HELD = frozenset({errno.EWOULDBLOCK, errno.EACCES})

# File systems on which SQLite's write-ahead log does not work: its processes share memory through the file.
NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs fuse.glusterfs fuse.sshfs glusterfs gpfs lustre nfs nfs4 ncpfs panfs pvfs2 smb3 smbfs".split()  # noqa: SIM905, E501 - one line is easier to read
)


def spool_directory(given: Path | None, *, environment: Mapping[str, str], mounts: str) -> Path:
    """Return the spool's folder: as given, or the first usual place on a local disk.

    Args:
        given: the value of --spool or GPUAGENT_SPOOL_DIR.
        mounts: the text of /proc/self/mounts.

    Raises:
        MisuseError: the given folder is on a network file system, or no usual place is on a local one.
    """
    if given:
        kind = file_system(given, mounts)
        if kind in NETWORK_FILE_SYSTEMS:
            raise MisuseError(
                f"the spool {given} is on a network file system ({kind}), which would damage it; "
                "name a folder on a local disk: --spool DIR"
            )
        return given
    state, home = environment.get("XDG_STATE_HOME"), home_folder(environment)
    places = [Path("/var/lib/gpuagent")] if os.geteuid() == 0 and not state else []
    if state or home:
        places.append((Path(state) if state else Path(str(home)) / ".local" / "state") / "gpuagent")
    for candidate in (*places, *temporary_folders()):
        if file_system(candidate, mounts) not in NETWORK_FILE_SYSTEMS and is_usable(candidate):
            return candidate
    raise MisuseError(f"no folder on a local disk can be written for the spool; name some: {REMEDY}")


def file_system(path: Path, mounts: str) -> str | None:
    """Return the type of the file system of `path`, which need not exist, by the text of /proc/mounts."""
    resolved = path.resolve()
    best: tuple[int, str | None] = (-1, None)
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = Path(fields[1].encode().decode("unicode_escape"))
        if resolved.is_relative_to(mount) and len(mount.parts) >= best[0]:
            best = (len(mount.parts), fields[2])
    return best[1]


def runtime_directory(environment: Mapping[str, str]) -> Path:
    """Return the folder of locks and sockets, created so that only this user can look into it.

    It is GPUAGENT_RUNTIME_DIR, or one that is the same for every session of the user: below /var/tmp, or where that
    cannot be written, /tmp or /dev/shm. XDG_RUNTIME_DIR is not set under cron, sudo and srun, and is deleted on logout,
    while an agent may still run. Raises GpuAgentError: it cannot be created, or belongs to another user.
    """
    named = environment.get(RUNTIME_VARIABLE)
    places = temporary_folders()
    folder = Path(named) if named else (first_usable(places) or places[0]) / "run"
    if not named:
        make_private(folder.parent)
    make_private(folder)
    return folder


def make_private(folder: Path, remedy: str = REMEDY) -> None:
    """Create `folder` so that only this user can look into it; `remedy` names the options for another.

    One that exists stays as it is if others can only read it, such as `/` or a home: what is put there is private. One
    in which they could write is closed to them, unless they can use something in it. Raises GpuAgentError: it cannot be
    created, belongs to another user or to all, or has something of others in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat(follow_symlinks=False)
    except OSError as error:
        raise GpuAgentError(f"cannot create the folder {folder}: {error.strerror}; name others: {remedy}") from error
    is_for_all = bool(found.st_mode & stat.S_ISVTX and found.st_mode & 0o022)  # such as /tmp
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode) or is_for_all:
        raise GpuAgentError(f"{folder} is not a folder of yours; name others: {remedy}")
    if found.st_mode & 0o022:
        _check_content(folder, remedy)
        folder.chmod(0o700)


def _check_content(folder: Path, remedy: str) -> None:
    """Raise GpuAgentError where a folder in which others could write has things of theirs, links, or what they use."""
    for path in folder.iterdir():
        inside = path.lstat()
        if inside.st_uid != os.geteuid() or stat.S_ISLNK(inside.st_mode):
            raise GpuAgentError(
                f"{path} may be another user's, who could write there; remove it, or name others: {remedy}"
            )
        if inside.st_mode & 0o077:
            raise GpuAgentError(
                f"other users can use {path}; gpuagent closes its folders to them, so name one of its own: {remedy}"
            )


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def lock(file: Path, *, held: str) -> IO[str]:
    """Lock `file` for as long as the returned file is open.

    Raises:
        LockedError: another process has it; the message begins with `held`.
        GpuAgentError: the file cannot be opened, or its file system has no locks.
    """
    try:
        opened = open(file, "a+", opener=_open_no_link)  # noqa: SIM115 - it stays open
    except OSError as error:
        raise GpuAgentError(f"cannot open {file}: {error.strerror}") from error
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        opened.seek(0)
        owner = opened.read().strip()
        opened.close()
        if error.errno not in _HELD:
            raise GpuAgentError(
                f"cannot lock {file}: {error.strerror}; name folders on a local disk: {REMEDY}"
            ) from error
        raise LockedError(f"{held} (process {owner or 'unknown'})") from error
    with contextlib.suppress(OSError):  # a full disk: the number is only for messages
        os.ftruncate(opened.fileno(), 0)
        os.write(opened.fileno(), f"{os.getpid()}\n".encode())
    return opened
