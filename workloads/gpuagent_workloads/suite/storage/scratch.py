"""The folder for the files of a run: its file system, its free space, and its deletion on exit."""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuagent_common.errors import MisuseError

# Differs between nodes, but not between the containers of a node, as their host names do.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# The rest of the free space is for everybody else.
_SHARE_OF_FREE = 0.5

# Outlives the workload, waits for the end of its pipe, and deletes the folder: SIGKILL lets nobody clean up.
_GUARD = "import shutil, sys; sys.stdin.buffer.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """A mounted file system; None where the kernel does not show it."""

    # ext4, xfs, nfs4, lustre, overlay, tmpfs, …
    kind: str | None
    # The device, or server and path.
    source: str | None


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a folder in `parent`, and delete it at the end, also when this process is killed.

    Folders of earlier runs on this node whose processes and guards were killed together, as with a container, are
    deleted too, unless the node was restarted since.

    Raises:
        MisuseError: `parent` is no folder, or cannot be written to.
    """
    try:
        _sweep(parent)
        folder, lock = _claim(parent)
    except OSError as error:
        raise MisuseError(f"--folder {parent}: {error.strerror}; name a folder that you may write to") from error
    guard = _start_guard(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        # Its work is done, and workers of a data loader may still hold its pipe.
        guard.kill()
        guard.communicate()
        if lock is not None:
            os.close(lock)


def _start_guard(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a process that deletes the folder once this one has ended."""
    # It inherits the mask, and so outlives what ends the workload: gpuagent's supervisor sends SIGTERM to all
    # descendants. Signals to the group of processes do not reach it either, since it has a session of its own.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prefix() -> str:
    """Return the start of the folders' names, this node's own: not all file systems show locks to other nodes."""
    try:
        node = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        node = os.uname().nodename
    return f"gpuagent-storage-{node}-"


def _claim(parent: Path) -> tuple[Path, int | None]:
    """Make a folder and mark it as used; another run may delete it in between."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=parent))
        with contextlib.suppress(FileNotFoundError):
            lock = _lock(folder, wait=True)
            if folder.exists():
                return folder, lock
            if lock is not None:
                os.close(lock)


def _lock(folder: Path, *, wait: bool = False) -> int | None:
    """Return a descriptor that marks the folder as used; None: it is in use, or its file system has no locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep(parent: Path) -> None:
    """Delete this user's folders on this node that no process uses any more."""
    for folder in parent.glob(f"{_prefix()}*"):
        # Another run may delete its own at this time.
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid() and (lock := _lock(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def require_space(folder: Path, size_bytes: int, files: int) -> None:
    """Check that files of that size leave half of the free space and of the free file names (inodes).

    Raises:
        MisuseError: they do not.
    """
    free = os.statvfs(folder)
    free_bytes = free.f_bavail * free.f_frsize
    if size_bytes > free_bytes * _SHARE_OF_FREE:
        raise MisuseError(
            f"{folder.parent} has {free_bytes:,} bytes free, and the files would take {size_bytes:,}, more than half: "
            "give less --bytes or --files"
        )
    # File systems that make inodes on demand report none.
    if free.f_files and files > free.f_favail * _SHARE_OF_FREE:
        raise MisuseError(
            f"{folder.parent} has room for {free.f_favail:,} more files, and {files:,} are more than half: give less "
            "--files"
        )


def find_file_system(folder: Path, mountinfo: str | None = None) -> FileSystem:
    """Return the file system of a folder, by the longest mount point above it, of equal ones the last.

    Args:
        folder: any existing folder.
        mountinfo: text of /proc/self/mountinfo; None: it is read.
    """
    if mountinfo is None:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    path, found = folder.resolve(), FileSystem(kind=None, source=None)
    longest = -1
    for line in mountinfo.splitlines():
        mount, separator, rest = line.partition(" - ")
        fields, kind_and_source = mount.split(" "), rest.split(" ")
        if not separator or len(fields) < 5 or len(kind_and_source) < 2:
            continue
        point = Path(_unescape(fields[4]))
        if path.is_relative_to(point) and len(point.parts) >= longest:
            longest = len(point.parts)
            found = FileSystem(kind=kind_and_source[0], source=_unescape(kind_and_source[1]))
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
