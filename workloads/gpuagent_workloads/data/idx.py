"""The reader of IDX files, the format of the original MNIST: a magic number, the dimensions, then the values.

Layout: two zero bytes, a byte for the type (8: unsigned byte), a byte for the number of dimensions, each dimension as a
big-endian 32-bit count, then exactly that many values. The files may be gzipped, whatever they are called.
"""

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.errors import DataError

# Files that claim to hold more are refused before anything is allocated; MNIST's largest has 47 MB.
MAX_BYTES = 1 << 30

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTES = b"\x00\x00\x08"


def read_idx(path: Path, item_shape: Sequence[int]) -> npt.NDArray[np.uint8]:
    """Return the values of an IDX file of unsigned bytes: shape (items, *item_shape).

    Raises:
        DataError: the file cannot be read, or has another format.
    """
    try:
        with path.open("rb") as raw:
            compressed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            if not compressed:
                return _read(raw, tuple(item_shape))
            with gzip.GzipFile(fileobj=raw) as unpacked:
                return _read(unpacked, tuple(item_shape))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}): fetch it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except _NotIdxError as error:
        raise DataError(f"{path} {error}") from error


class _NotIdxError(Exception):
    """A damaged IDX file; the message continues its name."""


def _read(stream: IO[bytes] | gzip.GzipFile, item_shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    shape = _read_shape(stream, dimensions=1 + len(item_shape))
    if shape[1:] != item_shape or shape[0] == 0:
        raise _NotIdxError(f"holds {_times(shape)} values, not {_times(('N', *item_shape))}")
    size_bytes = math.prod(shape)
    if size_bytes > MAX_BYTES:
        raise _NotIdxError(f"claims to hold {size_bytes} bytes, more than the {MAX_BYTES} that are accepted")
    # One byte more than expected, to notice trailing bytes.
    values = stream.read(size_bytes + 1)
    if len(values) < size_bytes:
        raise _NotIdxError(f"is truncated: {len(values)} of {size_bytes} bytes of values")
    if len(values) > size_bytes:
        raise _NotIdxError(f"goes on after its {size_bytes} bytes of values")
    # Copied, since a view of bytes is read-only, which torch warns about.
    return np.frombuffer(values, np.uint8).reshape(shape).copy()


def _read_shape(stream: IO[bytes] | gzip.GzipFile, dimensions: int) -> tuple[int, ...]:
    magic = stream.read(4)
    if magic[:3] != _UNSIGNED_BYTES or len(magic) < 4:
        raise _NotIdxError(f"is not an IDX file of unsigned bytes: it begins with {magic.hex(' ') or 'nothing'}")
    if magic[3] != dimensions:
        raise _NotIdxError(f"has {magic[3]} dimensions, not {dimensions}")
    counts = stream.read(4 * dimensions)
    if len(counts) < 4 * dimensions:
        raise _NotIdxError("is truncated within its dimensions")
    return struct.unpack(f">{dimensions}I", counts)


def _times(shape: Sequence[int | str]) -> str:
    return " × ".join(str(length) for length in shape)
