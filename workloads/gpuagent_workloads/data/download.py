"""Downloads over HTTP: an interrupted one continues where it stopped, and no damaged file is ever left."""

import hashlib
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, responses
from pathlib import Path

import click

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import DataError

# The most that is fetched of a file of unpublished size.
MAX_UNPUBLISHED_BYTES = 1 << 24

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30

# Redraws of a bar at most: an archive may hold 100,000 files.
_REDRAWS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file with its published size and checksum."""

    name: str
    # None: unpublished, so an interrupted download begins anew.
    size_bytes: int | None
    # None: unpublished, so the caller has to check the content.
    sha256: str | None

    @property
    def max_bytes(self) -> int:
        """The most that is fetched of it."""
        return MAX_UNPUBLISHED_BYTES if self.size_bytes is None else self.size_bytes


def fetch(file: RemoteFile, mirrors: Sequence[str], directory: Path) -> bool:
    """Fetch `file` into `directory` from the first mirror that has it; return False when it was there already.

    Args:
        file: what to fetch.
        mirrors: URLs of folders that hold it.
        directory: created when it does not exist. The remains of an earlier attempt are used.

    Raises:
        MisuseError: a mirror is not an http or https URL.
        DataError: no mirror has the file intact, or it cannot be written.
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
        try:
            parts = urllib.parse.urlsplit(mirror)
        except ValueError as error:
            raise MisuseError(f"--mirror {mirror} is not a URL: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise MisuseError(f"--mirror needs an http or https URL, not {mirror}")


def _fetch_from_any(file: RemoteFile, mirrors: Sequence[str], target: Path) -> None:
    part = target.with_name(target.name + ".part")
    failures = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{file.name}"
        failure = _download(url, part, file) or _fault(part, file)
        if failure is None:
            part.replace(target)
            return
        failures.append(f"{url}: {failure}")
        if part.is_file() and part.stat().st_size >= file.max_bytes:
            # Complete and wrong: useless for the next mirror.
            part.unlink()
    raise DataError(f"cannot fetch {file.name}: {'; '.join(failures)}. give another source with --mirror URL")


def _download(url: str, part: Path, file: RemoteFile) -> str | None:
    """Complete `part` from `url`, up to the file's size; return an error message, None without an error."""
    have_bytes = part.stat().st_size if part.is_file() and file.size_bytes is not None else 0
    if have_bytes >= file.max_bytes:
        return None
    headers = {"User-Agent": "gpuagent", "Range": f"bytes={have_bytes}-"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - its scheme was checked
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - as above
            resumed = have_bytes > 0 and response.status == HTTPStatus.PARTIAL_CONTENT
            _append(response, part, file, url, have_bytes if resumed else 0)
    except urllib.error.HTTPError as error:
        # Not the server's own words, which may hold control characters for the terminal.
        return f"{error.code} {responses.get(error.code, '')}".rstrip()
    except urllib.error.URLError as error:
        return str(error.reason)
    except (HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        return f"the connection broke ({str(error)!r})"
    except ValueError as error:
        # A name that DNS cannot hold or an invalid address, also in a redirection.
        return f"it is not a valid URL ({str(error)!r})"
    return None


def _append(response: HTTPResponse, part: Path, file: RemoteFile, url: str, have_bytes: int) -> None:
    """Write the response after the first `have_bytes` of `part`, up to the file's size."""
    size = "" if file.size_bytes is None else f" ({megabytes(file.size_bytes)})"
    length = have_bytes + response.length if response.length else file.max_bytes
    left_bytes = file.max_bytes - have_bytes
    with (
        part.open("ab" if have_bytes else "wb") as stream,
        progress(f"fetching {url}{size}", length, have_bytes) as advance,
    ):
        while left_bytes > 0 and (chunk := response.read(min(left_bytes, _CHUNK_BYTES))):
            left_bytes -= stream.write(chunk)
            advance(len(chunk))
    # http.client does not report a body that ends before its Content-Length.
    if left_bytes > 0 and response.length:
        raise ConnectionError(f"{response.length} bytes are missing")


def _fault(path: Path, file: RemoteFile) -> str | None:
    """Return the fault of the file at `path`, None if it has none."""
    size_bytes = path.stat().st_size
    if file.size_bytes is not None and size_bytes != file.size_bytes:
        return f"{size_bytes} bytes instead of {file.size_bytes}"
    if file.sha256 is None:
        return None
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        for chunk in iter(lambda: stream.read(_CHUNK_BYTES), b""):
            digest.update(chunk)
    return None if digest.hexdigest() == file.sha256 else "its SHA-256 is wrong"


def notify(text: str) -> None:
    """Print a line on stderr."""
    click.echo(text, err=True)


def megabytes(size_bytes: int) -> str:
    """Return a number of bytes as text."""
    return f"{size_bytes / 1e6:,.1f} MB"


@contextmanager
def progress(label: str, length: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show progress on stderr: a bar on a terminal, elsewhere only the label.

    Yields a function to call with each further amount of `length`; `done` is the amount at the beginning.
    """
    notify(label)
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    with click.progressbar(length=length, file=sys.stderr, update_min_steps=max(1, length // _REDRAWS)) as bar:
        bar.update(done)
        yield bar.update
