"""Extraction of files from an archive that may be damaged or hostile.

Only members whose whole name matches a pattern are extracted. The pattern gives their path, so that no name can lead
anywhere else. Members that are no regular files, occur twice or have more bytes than expected are refused.
"""

import errno
import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from gpuagent_workloads.data.download import progress
from gpuagent_workloads.errors import DataError

_CHUNK_BYTES = 1 << 20

# Exceptions from reading a damaged archive.
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OverflowError,
    # zipfile's for unknown encryption or compression, and for names that are not text.
    RuntimeError,
    ValueError,
    # tarfile's for a truncated head of a gzip file, and zipfile's for truncated names and fields.
    TypeError,
    LookupError,
    struct.error,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The files to extract from an archive; all others stay in it."""

    # Matches the names of the members to extract. Its first group is their new path.
    pattern: re.Pattern[str]
    # Their number.
    files: int
    # Their size at most, all together.
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    name: str
    # Not a link, folder or device.
    is_file: bool
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, contents: Contents, directory: Path) -> None:
    """Extract the files of a .zip or a gzipped tar archive into `directory`, which must be empty.

    Raises:
        DataError: the archive is damaged, or does not hold exactly the expected files.
        OSError: a file cannot be read or written.
    """
    taken: set[str] = set()
    left_bytes = contents.max_bytes
    try:
        with _members(archive) as members, progress(f"unpacking {archive.name}", contents.files) as advance:
            for member in members:
                place = contents.pattern.fullmatch(member.name)
                if place is None:
                    continue
                if place[1] in taken or not member.is_file:
                    raise DataError(f"{archive} is refused: {member.name} occurs twice or is no regular file")
                taken.add(place[1])
                left_bytes -= _extract(member, directory / place[1], left_bytes)
                advance(1)
    except (*DAMAGE, OSError) as error:
        # For damage, gzip and bz2 raise an OSError without number, and zipfile EINVAL when it seeks out of the file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise DataError(f"{archive} is a damaged archive ({error or type(error).__name__})") from error
    if len(taken) != contents.files:
        raise DataError(f"{archive} holds {len(taken)} of the {contents.files} expected files")


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[_Member]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            yield (_zip_member(packed, info) for info in packed.infolist())
    else:
        with tarfile.open(archive, "r:gz") as packed_tar:
            yield (
                _Member(name=info.name, is_file=info.isreg(), open=partial(packed_tar.extractfile, info))
                for info in packed_tar
            )


def _zip_member(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Member:
    # The upper half holds the mode where the archive was made on Unix, and 0 elsewhere.
    kind = stat.S_IFMT(info.external_attr >> 16)
    is_file = not info.is_dir() and kind in (0, stat.S_IFREG)
    return _Member(name=info.filename, is_file=is_file, open=lambda: packed.open(info))


def _extract(member: _Member, target: Path, max_bytes: int) -> int:
    """Write a member to `target` and return its size in bytes, which the archive's own figure may not be."""
    source = member.open()
    assert source  # noqa: S101 - only members that are no files give None
    target.parent.mkdir(parents=True, exist_ok=True)
    written_bytes = 0
    with source, target.open("xb") as stream:
        while chunk := source.read(_CHUNK_BYTES):
            written_bytes += len(chunk)
            if written_bytes > max_bytes:
                raise DataError(f"{member.name} is refused: it makes the files larger than expected")
            stream.write(chunk)
    return written_bytes
