"""Files that only their owner may read, replaced whole or not at all."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from gpuagent_common.connection import is_open_to_others
from gpuagent_common.errors import GpuAgentError


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, with mode 0700; one that is there stays as it is.

    Raises:
        GpuAgentError: it cannot be made.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise GpuAgentError(f"cannot make the folder {folder}: {error.strerror}") from error


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` by a file with this content and mode 0600, its folder made with 0700 if need be.

    Raises:
        GpuAgentError: it cannot be written.
    """
    make_private_folder(path.parent)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise GpuAgentError(f"cannot write {path}: {error.strerror}") from error


def check_private(path: Path) -> None:
    """Refuse a file that others than its owner may use; a pod's group may read a Secret.

    Raises:
        GpuAgentError: they may; says what to do.
        FileNotFoundError: there is no such file.
    """
    if is_open_to_others(path.stat()):
        raise GpuAgentError(f"{path} can be read by others; run: chmod 600 {path}")


def check_unreadable_by_all(path: Path) -> None:
    """Refuse a key that everybody may read. A group may: Kubernetes gives mounted secrets to one.

    Raises:
        GpuAgentError: everybody may; says what to do.
        FileNotFoundError: there is no such file.
    """
    if path.stat().st_mode & stat.S_IRWXO:
        raise GpuAgentError(f"the key {path} can be read by everybody; run: chmod 600 {path}, or mount it with 0440")
