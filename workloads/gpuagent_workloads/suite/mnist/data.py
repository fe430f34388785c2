"""Digits for the MNIST workload: the original IDX files, gzipped or not, or synthetic ones of the same shape.

IDX files have two zero bytes, a byte for the type (8: unsigned byte), a byte for the number of dimensions, each
dimension as a big-endian 32-bit count, then exactly that many values. Synthetic digits are coarse glyphs at a random
place and brightness, in noise; a network can learn to distinguish them.
"""

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.data.download import RemoteFile, fetch, notify
from gpuagent_workloads.data.images import LabelledImages
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC

# Files that claim to hold more are refused before anything is allocated; MNIST's largest has 47 MB.
MAX_BYTES = 1 << 30

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTES = b"\x00\x00\x08"


def read_idx(path: Path, item_shape: Sequence[int]) -> npt.NDArray[np.uint8]:
    """Return the values of an IDX file of unsigned bytes: shape (items, *item_shape).

    Raises DataError: the file cannot be read, or has another format.
    """
    dimensions = 1 + len(item_shape)
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(2) == _GZIP_MAGIC
        with gzip.open(path) if is_packed else path.open("rb") as stream:
            head = stream.read(4 + 4 * dimensions)
            expected = (_UNSIGNED_BYTES + bytes([dimensions]), struct.pack(f">{len(item_shape)}I", *item_shape))
            if (head[:4], head[8:]) != expected or len(head) < 8:
                raise DataError(
                    f"{path} is not an IDX file of unsigned bytes in items of shape {tuple(item_shape)}: "
                    f"it begins with {head.hex(' ') or 'nothing'}"
                )
            shape = (int.from_bytes(head[4:8], "big"), *item_shape)
            size_bytes = math.prod(shape)
            if not 0 < size_bytes <= MAX_BYTES:
                raise DataError(f"{path} claims to hold {size_bytes} bytes; from 1 to {MAX_BYTES} are accepted")
            # One byte more than expected, to notice trailing bytes.
            values = stream.read(size_bytes + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}): fetch it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if len(values) != size_bytes:
        fault = "is truncated: it has" if len(values) < size_bytes else "goes on: it has at least"
        raise DataError(f"{path} {fault} {len(values)} bytes of values, and claims {size_bytes}")
    # Copied, since a view of bytes is read-only, which torch warns about.
    return np.frombuffer(values, np.uint8).reshape(shape).copy()


# Pixels on each side of an image, as in MNIST.
SIDE = 28

# Pixels of the image for each of the glyph's.
_SCALE = 3

# 5 × 7 glyphs, a string for each row.
_GLYPHS = (
    (".###.", "#...#", "#..##", "#.#.#", "##..#", "#...#", ".###."),
    ("..#..", ".##..", "..#..", "..#..", "..#..", "..#..", ".###."),
    (".###.", "#...#", "....#", "...#.", "..#..", ".#...", "#####"),
    (".###.", "#...#", "....#", "..##.", "....#", "#...#", ".###."),
    ("...#.", "..##.", ".#.#.", "#..#.", "#####", "...#.", "...#."),
    ("#####", "#....", "####.", "....#", "....#", "#...#", ".###."),
    ("..##.", ".#...", "#....", "####.", "#...#", "#...#", ".###."),
    ("#####", "....#", "...#.", "..#..", ".#...", ".#...", ".#..."),
    (".###.", "#...#", "#...#", ".###.", "#...#", "#...#", ".###."),
    (".###.", "#...#", "#...#", ".####", "....#", "...#.", ".##.."),
)


def make_digits(count: int, random: np.random.Generator) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return images, shape (count, 28, 28), and labels 0–9, shape (count,)."""
    small = np.array([[[dot == "#" for dot in row] for row in glyph] for glyph in _GLYPHS], dtype=np.uint8)
    glyphs = small.repeat(_SCALE, axis=1).repeat(_SCALE, axis=2)
    labels = random.integers(0, len(glyphs), count, dtype=np.uint8)
    inked = random.random((count, *glyphs.shape[1:]), dtype=np.float32) < 0.8
    brightness = random.integers(96, 256, (count, 1, 1), dtype=np.uint8)
    images = random.integers(0, 96, (count, SIDE, SIDE), dtype=np.uint8)
    _, height, width = glyphs.shape
    tops = random.integers(0, SIDE - height + 1, count)
    lefts = random.integers(0, SIDE - width + 1, count)
    strokes = glyphs[labels] * inked * brightness
    for image, stroke, top, left in zip(images, strokes, tops, lefts, strict=True):
        place = image[top : top + height, left : left + width]
        np.maximum(place, stroke, out=place)
    return images, labels


CLASSES = 10
SYNTHETIC_TRAIN, SYNTHETIC_TEST = 20_000, 2_000

# Those of torchvision.
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist")

TRAIN_FILES = (
    RemoteFile(
        name="train-images-idx3-ubyte.gz",
        size_bytes=9_912_422,
        sha256="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    RemoteFile(
        name="train-labels-idx1-ubyte.gz",
        size_bytes=28_881,
        sha256="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
)
TEST_FILES = (
    RemoteFile(
        name="t10k-images-idx3-ubyte.gz",
        size_bytes=1_648_877,
        sha256="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    RemoteFile(
        name="t10k-labels-idx1-ubyte.gz",
        size_bytes=4_542,
        sha256="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)


def load_digits(source: str, seed: int, reporter: Reporter) -> tuple[LabelledImages, LabelledImages]:
    """Return digits to train on and digits to test on, and report their source.

    Args:
        source: directory with the four IDX files, or `synthetic`.

    Raises:
        DataError: a file is missing or damaged, or two differ in length.
    """
    if source != SYNTHETIC:
        reporter.result("data_source", f"IDX files in {source}")
        return read_digits(Path(source), TRAIN_FILES), read_digits(Path(source), TEST_FILES)
    reporter.result("data_source", f"synthetic digits, made from seed {seed}")
    images, labels = make_digits(SYNTHETIC_TRAIN + SYNTHETIC_TEST, np.random.default_rng(seed))
    return LabelledImages(images=images, labels=labels).split(SYNTHETIC_TRAIN)


def read_digits(directory: Path, files: tuple[RemoteFile, RemoteFile]) -> LabelledImages:
    """Read a file of images and a file of labels, gzipped or not.

    Raises DataError: a file is missing or damaged, or the two differ in length.
    """
    images_path, labels_path = (_find(directory, file.name) for file in files)
    images = read_idx(images_path, (SIDE, SIDE))
    labels = read_idx(labels_path, ())
    if len(images) != len(labels):
        raise DataError(f"{labels_path} has {len(labels)} labels for the {len(images)} images of {images_path.name}")
    if labels.max() >= CLASSES:
        raise DataError(f"{labels_path} has a label {labels.max()}; digits end at {CLASSES - 1}")
    return LabelledImages(images=images, labels=labels)


def fetch_digits(directory: Path, mirrors: Sequence[str]) -> None:
    """Fetch the four files into `directory`, from `mirrors` or, if there are none, from torchvision's.

    Raises DataError: no mirror has them intact.
    """
    fetched = [fetch(file, mirrors or MIRRORS, directory) for file in (*TRAIN_FILES, *TEST_FILES)]
    if not any(fetched):
        notify(f"{directory} holds them already")


def _find(directory: Path, compressed_name: str) -> Path:
    plain_name = compressed_name.removesuffix(".gz")
    for path in (directory / plain_name, directory / compressed_name):
        if path.is_file():
            return path
    raise DataError(
        f"{directory} has neither {plain_name} nor {compressed_name}: "
        f"`gpuagent prepare mnist --data {directory}` fetches it"
    )
