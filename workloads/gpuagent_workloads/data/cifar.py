"""Readers of CIFAR-10 in its binary and in its Python form.

Binary (`data_batch_1.bin`): records of one byte for the label, then the red, green and blue plane of an image, 32 × 32
bytes each, row by row. Python (`data_batch_1`): a pickled dictionary whose `data` is an array of the same planes, a row
for each image, and whose `labels` are a list.

A pickle can run any code when it is read. These are read without numpy or anything else that they name: stand-ins take
the arguments of numpy's constructors, and the bytes among them are checked here.
"""

import io
import pickle
import pickletools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.data import read_file
from gpuagent_workloads.data.dataset import Dataset
from gpuagent_workloads.data.download import RemoteFile
from gpuagent_workloads.data.images import LabelledImages
from gpuagent_workloads.data.unpack import Contents
from gpuagent_workloads.errors import DataError

SIDE, CHANNELS, CLASSES = 32, 3, 10

IMAGE_BYTES = CHANNELS * SIDE * SIDE

# Larger files are refused before they are read; the originals have 31 MB.
MAX_BYTES = 1 << 28

# The highest number of an entry in a pickle's memo, since memory is taken for all numbers below it.
_MAX_MEMO = 1 << 20

_NUMBERING = ("PUT", "BINPUT", "LONG_BINPUT")

ORIGINAL_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
ORIGINAL_FILE_BYTES = 10_000 * (1 + IMAGE_BYTES)

_Fields = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


def read_cifar10(directory: Path) -> tuple[LabelledImages, LabelledImages]:
    """Return the images to train on and those to test on, from either form, in shape (count, 32, 32, 3).

    Raises:
        DataError: files are missing or damaged.
    """
    for suffix, parse in ((".bin", parse_binary), ("", parse_pickle)):
        name = re.compile(rf"data_batch_\d+{re.escape(suffix)}")
        train = sorted(path for path in directory.glob("data_batch_*") if name.fullmatch(path.name))
        test = directory / f"test_batch{suffix}"
        if train and test.is_file():
            return _read_all(train, parse), _read_all([test], parse)
    raise DataError(
        f"{directory} has neither data_batch_*.bin and test_batch.bin nor data_batch_* and test_batch: "
        f"`gpuagent prepare cifar10 --data {directory}` fetches them"
    )


def check_original(directory: Path) -> None:
    """Check that the six original binary files are complete.

    Raises:
        DataError: one is not.
    """
    for path in (directory / name for name in ORIGINAL_FILES):
        size_bytes = path.stat().st_size if path.is_file() else 0
        if size_bytes != ORIGINAL_FILE_BYTES:
            raise DataError(f"{path} has {size_bytes} of {ORIGINAL_FILE_BYTES} bytes")


CIFAR10 = Dataset(
    # Size and checksum as TensorFlow Datasets has them.
    archive=RemoteFile(
        name="cifar-10-binary.tar.gz",
        size_bytes=170_052_171,
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    mirrors=(
        "https://www.cs.toronto.edu/~kriz",
        "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets",
    ),
    contents=Contents(
        pattern=re.compile(r"(?:\./)?cifar-10-batches-bin/((?:data_batch_[1-5]|test_batch)\.bin)"),
        files=len(ORIGINAL_FILES),
        max_bytes=len(ORIGINAL_FILES) * ORIGINAL_FILE_BYTES,
    ),
    disk_bytes=len(ORIGINAL_FILES) * ORIGINAL_FILE_BYTES,
    check=check_original,
)


def parse_binary(content: bytes) -> _Fields:
    """Return labels (count,) and images (count, 3072) of a binary file.

    Raises:
        ValueError: it is damaged; the message continues the file's name.
    """
    if not content or len(content) % (1 + IMAGE_BYTES):
        raise ValueError(f"does not consist of records of {1 + IMAGE_BYTES} bytes: it has {len(content)} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + IMAGE_BYTES)
    return records[:, 0], records[:, 1:]


def parse_pickle(content: bytes) -> _Fields:
    """Return labels (count,) and images (count, 3072) of a pickled file.

    Raises:
        ValueError: it is damaged, or names more than it needs; the message continues the file's name.
    """
    batch = _unpickle(content)
    fields = batch if isinstance(batch, dict) else {}
    # Keys are bytes when Python 2 wrote the file, as it did the originals.
    data, labels = (fields.get(name.encode(), fields.get(name)) for name in ("data", "labels"))
    pixels = getattr(data, "content", None)
    if not isinstance(pixels, bytes) or not pixels or len(pixels) % IMAGE_BYTES:
        raise ValueError(f"has no array of whole images of {IMAGE_BYTES} bytes as its data")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise ValueError("has no list of small numbers as its labels")
    return np.array(labels, np.uint8), np.frombuffer(pixels, np.uint8).reshape(-1, IMAGE_BYTES)


def _read_all(paths: Sequence[Path], parse: Callable[[bytes], _Fields]) -> LabelledImages:
    labels, images = zip(*(_read(path, parse) for path in paths), strict=True)
    planes = np.concatenate(images).reshape(-1, CHANNELS, SIDE, SIDE)
    return LabelledImages(images=np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels=np.concatenate(labels))


def _read(path: Path, parse: Callable[[bytes], _Fields]) -> _Fields:
    content = read_file(path, MAX_BYTES)
    try:
        labels, images = parse(content)
    except ValueError as error:
        raise DataError(f"{path} {error}") from error
    if len(labels) != len(images):
        raise DataError(f"{path} has {len(labels)} labels for {len(images)} images")
    if labels.max() >= CLASSES:
        raise DataError(f"{path} has a label {labels.max()}; CIFAR-10's end at {CLASSES - 1}")
    return labels, images


class _Array:
    """A stand-in for numpy.ndarray that keeps the bytes it is made from."""

    content: bytes | None = None

    def __setstate__(self, state: Any) -> None:
        _version, _shape, kind, is_fortran, content = state
        if is_fortran or not isinstance(kind, _Type) or not kind.is_byte or not isinstance(content, bytes):
            raise ValueError("not an array of bytes")
        self.content = content


class _Type:
    """A stand-in for numpy.dtype."""

    def __init__(self, name: Any, *_flags: Any) -> None:
        self.is_byte = name in (b"u1", "u1")

    def __setstate__(self, _state: Any) -> None:
        """Ignore the byte order, which bytes do not have."""


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    # numpy 2 renamed the module.
    ("numpy.core.multiarray", "_reconstruct"): lambda *_arguments: _Array(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_arguments: _Array(),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which CIFAR-10 does not need")
        return _STAND_INS[module, name]


def _unpickle(content: bytes) -> Any:
    try:
        for opcode, argument, _position in pickletools.genops(content):
            if opcode.name in _NUMBERING and int(argument or 0) > _MAX_MEMO:
                raise pickle.UnpicklingError(f"it numbers {argument} places")
        return _Unpickler(io.BytesIO(content), encoding="bytes").load()
    # By its documentation, unpickling damaged data may raise any exception.
    except Exception as error:
        raise ValueError(f"is not a pickle of CIFAR-10: {error or type(error).__name__}") from error
