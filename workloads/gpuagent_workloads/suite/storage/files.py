"""Writing and reading of files, with and without the page cache."""

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

# Of a read and a write; direct reads need a multiple of the device's blocks.
BLOCK_BYTES = 1 << 20

# Different blocks in a row, so that file systems that compress or join equal blocks gain nothing.
_NOISE_BLOCKS = 64

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_MAP_FAILED = ctypes.c_void_p(-1).value


def make_noise() -> bytes:
    """Return random bytes to write from."""
    return os.urandom(_NOISE_BLOCKS * BLOCK_BYTES)


def write_file(path: Path, size_bytes: int, noise: bytes) -> None:
    """Write a file, and wait until it is on the disk (fsync)."""
    view = memoryview(noise)
    with path.open("wb", buffering=0) as file:
        for start in range(0, size_bytes, BLOCK_BYTES):
            place = start % len(noise)
            _write_all(file.fileno(), view[place : place + min(BLOCK_BYTES, size_bytes - start)])
        os.fsync(file.fileno())


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def write_small_files(folder: Path, count: int, size_bytes: int, noise: bytes) -> list[Path]:
    """Write files, 1,000 a folder, wait until they are on the disk, and return their paths."""
    # Each begins elsewhere in the first half of the noise, so none is longer than the other half.
    view, half = memoryview(noise), len(noise) // 2
    paths = []
    for number in range(count):
        home = folder / f"{number // 1000}"
        home.mkdir(parents=True, exist_ok=True)
        paths.append(home / f"{number}")
        start = number * 4099 % half
        with paths[-1].open("wb", buffering=0) as file:
            _write_all(file.fileno(), view[start : start + size_bytes])
    for path in paths:
        sync(path)
    return paths


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: Path) -> int:
    """Read a file in blocks, and return the number of its bytes."""
    buffer, total = bytearray(BLOCK_BYTES), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total += count
    return total


def read_directly(path: Path) -> int:
    """Read a file without the page cache (O_DIRECT), and return the number of its bytes.

    Raises:
        OSError: the file system does not have that.
    """
    # Memory that starts on a page, as direct reads need.
    buffer, total = mmap.mmap(-1, BLOCK_BYTES), 0
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        while count := os.preadv(descriptor, [buffer], total):
            total += count
    finally:
        os.close(descriptor)
        buffer.close()
    return total


def drop_from_cache(paths: Iterable[Path]) -> None:
    """Ask the kernel to drop the pages of files that are on the disk; others' files stay in its cache."""
    for descriptor in _open_all(paths):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(paths: Sequence[Path]) -> float | None:
    """Return the share of the files' pages in the page cache (mincore), 0 to 1; None: the kernel does not show it."""
    cached = total = 0
    for descriptor in _open_all(paths):
        size = os.fstat(descriptor).st_size
        if not size:
            continue
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _MAP_FAILED:
            return None
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        failed = _libc.mincore(address, size, pages)
        _libc.munmap(address, size)
        if failed:
            return None
        # The other bits have no meaning.
        cached += sum(page & 1 for page in pages)
        total += len(pages)
    return cached / total if total else None


def _open_all(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
