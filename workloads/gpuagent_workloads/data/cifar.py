"""The reader of CIFAR-10 in its binary form (`data_batch_1.bin`).

Records have one byte for the label, then the red, green and blue plane of an image, 32 × 32 bytes each, row by row. The
Python form consists of pickles, which can run any code, and is not read.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.data.download import Contents, Dataset, RemoteFile, read_file
from gpuagent_workloads.data.images import LabelledImages
from gpuagent_workloads.errors import DataError

SIDE, CHANNELS, CLASSES = 32, 3, 10

IMAGE_BYTES = CHANNELS * SIDE * SIDE

# Larger files are refused before they are read; the originals have 31 MB.
MAX_BYTES = 1 << 28

ORIGINAL_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
ORIGINAL_FILE_BYTES = 10_000 * (1 + IMAGE_BYTES)

_TRAINING = re.compile(r"data_batch_\d+\.bin")


def read_cifar10(directory: Path) -> tuple[LabelledImages, LabelledImages]:
    """Return the images to train on and those to test on, in shape (count, 32, 32, 3).

    Raises DataError: files are missing or damaged.
    """
    train = sorted(path for path in directory.glob("data_batch_*.bin") if _TRAINING.fullmatch(path.name))
    test = directory / "test_batch.bin"
    if not (train and test.is_file()):
        raise DataError(
            f"{directory} has no data_batch_*.bin and test_batch.bin: "
            f"`gpuagent prepare cifar10 --data {directory}` fetches them"
        )
    return _read_all(train), _read_all([test])


def check_original(directory: Path) -> None:
    """Check that the six original binary files are complete. Raises DataError where one is not."""
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
    check=check_original,
)


def parse_binary(content: bytes, path: Path) -> npt.NDArray[np.uint8]:
    """Return the records of a binary file, shape (count, 3073): a label, and an image.

    Raises DataError: it is damaged.
    """
    if not content or len(content) % (1 + IMAGE_BYTES):
        raise DataError(f"{path} does not consist of records of {1 + IMAGE_BYTES} bytes: it has {len(content)} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + IMAGE_BYTES)
    if records[:, 0].max() >= CLASSES:
        raise DataError(f"{path} has a label {records[:, 0].max()}; CIFAR-10's end at {CLASSES - 1}")
    return records


def _read_all(paths: Sequence[Path]) -> LabelledImages:
    records = np.concatenate([parse_binary(read_file(path, MAX_BYTES), path) for path in paths])
    planes = records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE)
    return LabelledImages(images=np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels=records[:, 0])
