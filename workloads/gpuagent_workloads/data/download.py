"""Fetches files over HTTP: an interrupted download goes on where it stopped, and no damaged file is ever left."""

import hashlib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path

from gpuagent_workloads.errors import DataError, MisuseError

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file as it must be."""

    name: str
    size_bytes: int
    sha256: str


def fetch(file: RemoteFile, mirrors: Sequence[str], directory: Path) -> bool:
    """Put `file` into `directory`, from the first mirror that has it; False when it was there already.

    Args:
        file: what to fetch.
        mirrors: URLs of folders that hold it.
        directory: where to put it; made when it is not there. What is there of an earlier attempt is used.

    Raises:
        MisuseError: a mirror is no http or https URL.
        DataError: no mirror gave the file as it must be, or it cannot be written.
    """
    _check_mirrors(mirrors)
    target = directory / file.name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if target.is_file() and _fault(target, file) is None:
            return False
        _fetch_from_any(file, mirrors, target)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}") from error
    return True


def _check_mirrors(mirrors: Sequence[str]) -> None:
    for mirror in mirrors:
        if urllib.parse.urlsplit(mirror).scheme not in ("http", "https"):
            raise MisuseError(f"--mirror wants an http or https URL, not {mirror}")


def _fetch_from_any(file: RemoteFile, mirrors: Sequence[str], target: Path) -> None:
    part = target.with_name(target.name + ".part")
    failures = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{file.name}"
        failure = _download(url, part, file.size_bytes) or _fault(part, file)
        if failure is None:
            part.replace(target)
            return
        failures.append(f"{url}: {failure}")
        if part.is_file() and part.stat().st_size >= file.size_bytes:
            # Complete and wrong: nothing to go on from.
            part.unlink()
    raise DataError(f"cannot fetch {file.name}: {'; '.join(failures)}. --mirror URL names another source")


def _download(url: str, part: Path, size_bytes: int) -> str | None:
    """Complete `part` from `url`; return what went wrong, None if nothing did. Never takes more than was promised."""
    have_bytes = part.stat().st_size if part.is_file() else 0
    if have_bytes >= size_bytes:
        return None
    request = urllib.request.Request(url, headers={"Range": f"bytes={have_bytes}-"})  # noqa: S310 - scheme was checked
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - as above
            resumed = response.status == HTTPStatus.PARTIAL_CONTENT
            left_bytes = size_bytes - have_bytes if resumed else size_bytes
            with part.open("ab" if resumed else "wb") as stream:
                while left_bytes > 0 and (chunk := response.read(min(left_bytes, _CHUNK_BYTES))):
                    left_bytes -= stream.write(chunk)
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}"
    except urllib.error.URLError as error:
        return str(error.reason)
    except (HTTPException, ConnectionError, TimeoutError) as error:
        return f"the connection broke ({error})"
    return None


def _fault(path: Path, file: RemoteFile) -> str | None:
    """Return what is wrong with the file at `path`, None if nothing is."""
    if path.stat().st_size != file.size_bytes:
        return f"{path.stat().st_size} bytes instead of {file.size_bytes}"
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return None if digest.hexdigest() == file.sha256 else "its SHA-256 is wrong"
