"""Digits for the MNIST workload: the original IDX files, or synthetic ones of the same shape."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpuagent_workloads.data.download import RemoteFile, fetch, notify
from gpuagent_workloads.data.idx import read_idx
from gpuagent_workloads.data.images import LabelledImages
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.mnist.synthetic import SIDE, make_digits
from gpuagent_workloads.training.config import SYNTHETIC

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
        seed: of synthetic digits.
        reporter: where to report.

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

    Raises:
        DataError: a file is missing or damaged, or the two differ in length.
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

    Raises:
        DataError: no mirror has them intact.
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
