"""Files that only their owner may read, replaced whole or not at all, and the owner's token among them."""

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from gpuagent_common.connection import TokenError, is_open_to_others, read_token
from gpuagent_common.errors import GpuAgentError


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700; leave one that exists unchanged.

    Raises GpuAgentError: it cannot be made.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        remedy = "name another by its option, or by XDG_CONFIG_HOME"
        raise GpuAgentError(f"cannot make the folder {folder}: {error.strerror}; {remedy}") from error


def check_folder(folder: Path) -> None:
    """Reject a folder in which another user could replace this user's files; one that is missing passes.

    Raises:
        GpuAgentError: it belongs to another user, or all can write there.
    """
    try:
        found = folder.stat()
    except FileNotFoundError:
        return
    if found.st_uid not in (os.geteuid(), 0) or (found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX):
        raise GpuAgentError(f"others could replace the files in {folder}; name a folder of your own")


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` by a file with this content and mode 0600, in a folder made with mode 0700 if need be.

    Raises GpuAgentError: it cannot be written.
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
    """Reject a file that anyone but this user can use; a pod's group may read a Secret, which root owns.

    Raises:
        GpuAgentError: others can.
        FileNotFoundError: there is no such file.
    """
    _check_owner(path)
    if is_open_to_others(path.stat()):
        raise GpuAgentError(f"other users can read {path}; run: chmod 600 {path}")


def _check_owner(path: Path) -> None:
    """Reject a file of another user, whose folders root may use by mistake: with `sudo -E`, or with `su`."""
    if path.stat().st_uid not in (os.geteuid(), 0):
        raise GpuAgentError(f"{path} belongs to another user; use a folder of your own: XDG_CONFIG_HOME=DIR")


def check_unreadable_by_all(path: Path) -> None:
    """Reject a key that everybody can read. A group may: Kubernetes gives mounted secrets to one.

    Raises:
        GpuAgentError: everybody can.
        FileNotFoundError: there is no such file.
    """
    if path.stat().st_mode & stat.S_IRWXO:
        raise GpuAgentError(f"everybody can read the key {path}; run: chmod 600 {path}, or mount it with 0440")


_TOKEN_BYTES = 32


def ensure_token(path: Path) -> str:
    """Return the token in `path`; make the file, readable by its owner alone, if it does not exist.

    Raises GpuAgentError: the file cannot be read or made, or others can read it.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        if known := _read_token(path):
            return known
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Whole from the first moment: another collector that starts now reads it.
        with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}-") as file:
            file.write(token + "\n")
            file.flush()
            os.link(file.name, path)
    except OSError as error:
        # Another collector was faster, unless a link leads nowhere.
        if isinstance(error, FileExistsError) and (known := _read_token(path)):
            return known
        raise GpuAgentError(f"cannot make the token file {path}: {error.strerror}; give --token-file") from error
    return token


def _read_token(path: Path) -> str | None:
    """Return the token in a file; None: there is no file."""
    try:
        _check_owner(path)
        return read_token(path)
    except FileNotFoundError:
        return None
    except TokenError as error:
        # Its collector makes it.
        reason = str(error).replace("; give another by --token-file", "; delete it for a new one")
        raise GpuAgentError(reason.partition(", or join: ")[0]) from error
