"""Reviews for the sentiment workload as numbers: real ones, or synthetic ones of the same shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.data.dataset import check_space
from gpuagent_workloads.data.download import RemoteFile, fetch
from gpuagent_workloads.data.progress import tell
from gpuagent_workloads.data.reviews import PARTS, Review, convert_archive, read_reviews
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.sentiment.synthetic import make_reviews
from gpuagent_workloads.suite.sentiment.vocabulary import encode, number_words, words_of
from gpuagent_workloads.training.config import SYNTHETIC

SYNTHETIC_TRAIN, SYNTHETIC_TEST = 10_000, 1_000

MIRRORS = ("https://ai.stanford.edu/~amaas/data/sentiment",)

# Size and checksum as TensorFlow Datasets has them.
ARCHIVE = RemoteFile(
    name="aclImdb_v1.tar.gz",
    size_bytes=84_125_825,
    sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
)

# What the tables made of it take up, rounded up.
TABLES_BYTES = 70_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedReviews:
    """Words as numbers below VOCABULARY, shape (count, length), with their labels, shape (count,)."""

    words: npt.NDArray[np.int32]
    # 0: bad; 1: good.
    labels: npt.NDArray[np.float32]


def load_reviews(source: str, length: int, seed: int, reporter: Reporter) -> tuple[EncodedReviews, EncodedReviews]:
    """Return reviews to train on and reviews to test on, and report where they come from.

    Args:
        source: directory with the reviews, or `synthetic`.
        length: words of each review.
        seed: what synthetic reviews are made from.
        reporter: where to report.

    Raises:
        DataError: the reviews are missing or damaged.
    """
    if source != SYNTHETIC:
        reporter.result("data_source", f"reviews in {source}")
        train, test = (read_reviews(Path(source), part) for part in PARTS)
        return _encoded(train, test, length)
    reporter.result("data_source", f"synthetic reviews, made from seed {seed}")
    words, labels = make_reviews(SYNTHETIC_TRAIN + SYNTHETIC_TEST, length, np.random.default_rng(seed))
    return (
        EncodedReviews(words=words[:SYNTHETIC_TRAIN], labels=labels[:SYNTHETIC_TRAIN]),
        EncodedReviews(words=words[SYNTHETIC_TRAIN:], labels=labels[SYNTHETIC_TRAIN:]),
    )


def fetch_reviews(directory: Path, mirrors: Sequence[str]) -> None:
    """Fetch aclImdb's archive from `mirrors` or, if there are none, from its authors, and convert it.

    Nothing is fetched when both tables are there: a table gets its name only when it is complete.

    Raises:
        DataError: no mirror has it as it must be, or there is no room for it.
    """
    if all((directory / f"{part}.tsv").is_file() for part in PARTS):
        tell(f"{directory} holds it already")
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        check_space(ARCHIVE, TABLES_BYTES, directory)
        fetch(ARCHIVE, mirrors or MIRRORS, directory)
        tell(f"converting {ARCHIVE.name}")
        convert_archive(directory / ARCHIVE.name, directory)
        (directory / ARCHIVE.name).unlink()
    except OSError as error:
        raise DataError(f"cannot write to {directory}: {error.strerror or error}") from error


def _encoded(train: Sequence[Review], test: Sequence[Review], length: int) -> tuple[EncodedReviews, EncodedReviews]:
    """Number the words by their frequency in `train` alone: what is tested on must not be known before."""
    train_texts, test_texts = ([words_of(review.text) for review in reviews] for reviews in (train, test))
    numbers = number_words(train_texts)
    return (
        EncodedReviews(words=encode(train_texts, numbers, length), labels=_labels(train)),
        EncodedReviews(words=encode(test_texts, numbers, length), labels=_labels(test)),
    )


def _labels(reviews: Sequence[Review]) -> npt.NDArray[np.float32]:
    return np.array([review.label for review in reviews], dtype=np.float32)
