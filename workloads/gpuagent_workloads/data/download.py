"""Datasets as their authors publish them: fetched over HTTP, unpacked and checked; nothing damaged is ever left."""

import errno
import hashlib
import re
import sys
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, responses
from pathlib import Path
from typing import IO

import click

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import DataError

# The most that is fetched of a file of unpublished size.
MAX_UNPUBLISHED_BYTES = 1 << 24

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file with its published size and checksum; None: unpublished, so the caller has to check the content."""

    name: str
    size_bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The files to extract from an archive; all others stay in it."""

    # Matches the names of the members to extract. Its first group is their new path, so that no name leads elsewhere.
    pattern: re.Pattern[str]
    # Their number.
    files: int
    # Their size at most, all together.
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """An archive, and the used part of it."""

    archive: RemoteFile
    # URLs of folders that hold the archive, the authors' first.
    mirrors: Sequence[str]
    contents: Contents
    # Raises DataError unless a directory holds all of it.
    check: Callable[[Path], None]
    # The folder that it consists of; None: it consists of files.
    folder: str | None = None

    def prepare(self, directory: Path, mirrors: Sequence[str]) -> None:
        """Fetch and unpack the dataset into `directory`, unless it is there.

        Args:
            mirrors: URLs of folders to fetch the archive from; empty: the dataset's own.

        Raises:
            MisuseError: a mirror is not an http or https URL.
            DataError: the dataset cannot be fetched intact, or the disk is full.
        """
        try:
            self.check(directory)
        except DataError as error:
            if self.folder and (directory / self.folder).exists():
                raise DataError(
                    f"{directory / self.folder} is in the way ({error}): remove it, or name another --data"
                ) from error
        else:
            notify(f"{directory} holds it already")
            return
        fetch(self.archive, mirrors or self.mirrors, directory)
        try:
            archive = directory / self.archive.name
            with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=directory) as scratch:
                try:
                    unpack(archive, self.contents, Path(scratch))
                    self.check(Path(scratch))
                except DataError as error:
                    # Useless, and a later attempt must not take it for complete.
                    archive.unlink()
                    raise DataError(f"{self.archive.name} is damaged or another file: {error}") from error
                for path in Path(scratch).iterdir():
                    path.replace(directory / path.name)
            archive.unlink()
        except OSError as error:
            raise DataError(f"cannot write to {directory}: {error.strerror or error}") from error


def fetch(file: RemoteFile, mirrors: Sequence[str], directory: Path) -> bool:
    """Fetch `file` into `directory` from the first mirror that has it; return False when it was there already.

    Args:
        mirrors: URLs of folders that hold it.

    Raises:
        MisuseError: a mirror is not an http or https URL.
        DataError: no mirror has the file intact, or it cannot be written.
    """
    for mirror in mirrors:
        try:
            parts = urllib.parse.urlsplit(mirror)
        except ValueError as error:
            raise MisuseError(f"--mirror {mirror} is not a URL: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise MisuseError(f"--mirror needs an http or https URL, not {mirror}")
    target = directory / file.name
    part = target.with_name(f"{target.name}.part")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if target.is_file() and file.sha256 in (None, _digest(target)):
            return False
        failures = []
        for mirror in mirrors:
            url = f"{mirror.rstrip('/')}/{file.name}"
            failure = _download(url, part, file)
            if failure is None:
                part.replace(target)
                return True
            part.unlink(missing_ok=True)
            failures.append(f"{url}: {failure}")
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}") from error
    raise DataError(f"cannot fetch {file.name}: {'; '.join(failures)}. give another source with --mirror URL")


def _download(url: str, part: Path, file: RemoteFile) -> str | None:
    """Write `part` from `url`, up to the file's size; return its fault or that of the connection, None without any."""
    request = urllib.request.Request(url, headers={"User-Agent": "gpuagent"})  # noqa: S310 - its scheme was checked
    left_bytes = MAX_UNPUBLISHED_BYTES if file.size_bytes is None else file.size_bytes
    size = "" if file.size_bytes is None else f" ({file.size_bytes / 1e6:,.1f} MB)"
    try:
        with (
            urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response,  # noqa: S310 - as above
            part.open("wb") as stream,
            progress(f"fetching {url}{size}", response.length or left_bytes) as advance,
        ):
            while left_bytes > 0 and (chunk := response.read(min(left_bytes, _CHUNK_BYTES))):
                left_bytes -= stream.write(chunk)
                advance(len(chunk))
            # http.client does not report a body that ends before its Content-Length.
            if left_bytes > 0 and response.length:
                return f"{response.length} bytes are missing"
    except urllib.error.HTTPError as error:
        # Not the server's own words, which may hold control characters for the terminal.
        return f"{error.code} {responses.get(error.code, '')}".rstrip()
    except urllib.error.URLError as error:
        return str(error.reason)
    except (HTTPException, ConnectionError, TimeoutError) as error:
        return f"the connection broke ({str(error)!r})"
    except ValueError as error:
        # A name that DNS cannot hold or an invalid address, also in a redirection.
        return f"it is not a valid URL ({str(error)!r})"
    if file.size_bytes is not None and left_bytes:
        return f"{file.size_bytes - left_bytes} bytes instead of {file.size_bytes}"
    return None if file.sha256 in (None, _digest(part)) else "its SHA-256 is wrong"


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def unpack(archive: Path, contents: Contents, directory: Path) -> None:
    """Extract the files of a .zip or a gzipped tar archive, damaged or hostile, into `directory`, which must be empty.

    Raises:
        DataError: the archive is damaged, or does not hold exactly the expected files.
        OSError: a file cannot be read or written.
    """
    taken: set[str] = set()
    left_bytes = contents.max_bytes
    with damage_reported(archive), progress(f"unpacking {archive.name}", contents.files) as advance:
        for name, open_member in _members(archive):
            place = contents.pattern.fullmatch(name)
            source = open_member() if place else None
            if place is None or source is None:
                continue
            with source:
                # The archive's own figure may be wrong.
                content = source.read(left_bytes + 1)
            left_bytes -= len(content)
            if left_bytes < 0:
                raise DataError(f"{archive} is refused: {name} makes the files larger than expected")
            target = directory / place[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            taken.add(place[1])
            advance(1)
    if len(taken) != contents.files:
        raise DataError(f"{archive} holds {len(taken)} of the {contents.files} expected files")


@contextmanager
def damage_reported(archive: Path) -> Iterator[None]:
    """Turn what tarfile and zipfile raise for damaged archives, which is nearly anything, into a DataError."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        # For damage, gzip and bz2 raise an OSError without number, and zipfile EINVAL when it seeks out of the file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise DataError(f"{archive} is a damaged archive ({error or type(error).__name__}): fetch it again") from error


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes] | None]]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    yield entry.filename, partial(packed.open, entry)
    else:
        with tarfile.open(archive, "r:gz") as packed_tar:
            for info in packed_tar:
                if info.isreg():
                    yield info.name, partial(packed_tar.extractfile, info)


def notify(text: str) -> None:
    """Print a line on stderr."""
    click.echo(text, err=True)


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], object]]:
    """Show progress on stderr: a bar on a terminal, elsewhere only the label.

    Yields a function to call with each further amount of `length`.
    """
    notify(label)
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    # An archive may hold 100,000 files.
    with click.progressbar(length=length, file=sys.stderr, update_min_steps=max(1, length // 500)) as bar:
        yield bar.update


def read_file(path: Path, max_bytes: int, remedy: str = "") -> bytes:
    """Return the content of a file, ending the error message with `remedy` if it cannot be read.

    Raises DataError: it cannot be read, or has more than `max_bytes`.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}{remedy}") from error
    if len(content) > max_bytes:
        raise DataError(f"{path} has more than the {max_bytes} bytes that are accepted")
    return content
