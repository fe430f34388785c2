"""Takes files out of an archive that may be damaged or hostile.

Only members whose whole name matches a pattern are taken, and the pattern says where they go, so that no name can lead
anywhere else. What is no regular file, is there twice or has more bytes than expected is refused.
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
from pathlib import Path
from typing import IO

from gpuagent_workloads.data.download import progress
from gpuagent_workloads.errors import DataError

_CHUNK_BYTES = 1 << 20

# What reading a damaged archive raises.
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OverflowError,
    # zipfile's for what is encrypted or compressed in a way that it does not know, and for names that are no text.
    RuntimeError,
    ValueError,
    # tarfile's for the head of a gzip file that ends within it, and zipfile's for names and fields that do.
    TypeError,
    LookupError,
    struct.error,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What is taken out of an archive; all else stays in it."""

    # Matches the names of the members to take. Its first group is the path that they get.
    pattern: re.Pattern[str]
    # How many there are.
    files: int
    # They have no more than this, all together.
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    name: str
    # A regular one: no link, folder or device.
    is_file: bool
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, contents: Contents, directory: Path) -> None:
    """Put the files of a .zip or a gzipped tar archive into `directory`, which must be empty.

    Raises:
        DataError: the archive is damaged, or does not hold exactly what it must.
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
                    raise DataError(f"{archive} is refused: {member.name} is there twice or is no regular file")
                taken.add(place[1])
                left_bytes -= _take(member, directory / place[1], left_bytes)
                advance(1)
    except (*DAMAGE, OSError) as error:
        # Damage is an OSError without number to gzip and bz2, and with this one when it sends zipfile out of the file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise DataError(f"{archive} is a damaged archive ({error or type(error).__name__})") from error
    if len(taken) != contents.files:
        raise DataError(f"{archive} holds {len(taken)} of the {contents.files} files that it must hold")


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[_Member]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            yield (_zip_member(packed, info) for info in packed.infolist())
    else:
        with tarfile.open(archive, "r:gz") as packed_tar:
            yield (_tar_member(packed_tar, info) for info in packed_tar)


def _zip_member(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Member:
    # The upper half holds the mode where the archive was made on Unix, and 0 elsewhere.
    kind = stat.S_IFMT(info.external_attr >> 16)
    is_file = not info.is_dir() and kind in (0, stat.S_IFREG)
    return _Member(name=info.filename, is_file=is_file, open=lambda: packed.open(info))


def _tar_member(packed: tarfile.TarFile, info: tarfile.TarInfo) -> _Member:
    return _Member(name=info.name, is_file=info.isreg(), open=lambda: packed.extractfile(info))


def _take(member: _Member, target: Path, max_bytes: int) -> int:
    """Write a member to `target` and return its bytes; what the archive says of its size is not relied on."""
    source = member.open()
    assert source  # noqa: S101 - None is only returned for what is no file
    target.parent.mkdir(parents=True, exist_ok=True)
    written_bytes = 0
    with source, target.open("xb") as stream:
        while chunk := source.read(_CHUNK_BYTES):
            written_bytes += len(chunk)
            if written_bytes > max_bytes:
                raise DataError(f"{member.name} is refused: it makes the files larger than they must be")
            stream.write(chunk)
    return written_bytes
