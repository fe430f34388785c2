"""Reviews for the sentiment workload as numbers: real ones, or synthetic ones of the same shape."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.data.dataset import check_space
from gpuagent_workloads.data.download import RemoteFile, fetch, notify
from gpuagent_workloads.data.reviews import PARTS, Review, convert_archive, read_reviews
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC

SYNTHETIC_TRAIN, SYNTHETIC_TEST = 10_000, 1_000

MIRRORS = ("https://ai.stanford.edu/~amaas/data/sentiment",)

# Size and checksum as TensorFlow Datasets has them.
ARCHIVE = RemoteFile(
    name="aclImdb_v1.tar.gz",
    size_bytes=84_125_825,
    sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
)

# The disk space of the tables made of it, rounded up.
TABLES_BYTES = 70_000_000

# Rows of the embedding: the 25,000 most frequent words, and two for padding and unknown words.
VOCABULARY = 25_002

PADDING, UNKNOWN = 0, 1

_LINE_BREAK = re.compile(r"<br\s*/?>")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[!?]")

# For each label: the numbers from 2 are bad words, those after them good ones.
_TELLING_WORDS = 50

# Of a review's words.
_TELLING_SHARE = 0.2

# Of its telling words; the others are of the other label, as in "not bad".
_SINCERE_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedReviews:
    """Words as numbers below VOCABULARY, shape (count, length), with their labels, shape (count,)."""

    words: npt.NDArray[np.int32]
    # 0: bad; 1: good.
    labels: npt.NDArray[np.float32]


def load_reviews(source: str, length: int, seed: int, reporter: Reporter) -> tuple[EncodedReviews, EncodedReviews]:
    """Return reviews to train on and reviews to test on, and report their source.

    Args:
        source: directory with the reviews, or `synthetic`.
        length: words of each review.
        seed: of synthetic reviews.
        reporter: where to report.

    Raises:
        DataError: the reviews are missing or damaged.
    """
    if source != SYNTHETIC:
        reporter.result("data_source", f"reviews in {source}")
        train, test = (read_reviews(Path(source), part) for part in PARTS)
        return _encode_sets(train, test, length)
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
        DataError: no mirror has it intact, or the disk is full.
    """
    if all((directory / f"{part}.tsv").is_file() for part in PARTS):
        notify(f"{directory} holds it already")
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        check_space(ARCHIVE, TABLES_BYTES, directory)
        fetch(ARCHIVE, mirrors or MIRRORS, directory)
        notify(f"converting {ARCHIVE.name}")
        convert_archive(directory / ARCHIVE.name, directory)
        (directory / ARCHIVE.name).unlink()
    except OSError as error:
        raise DataError(f"cannot write to {directory}: {error.strerror or error}") from error


def _encode_sets(train: Sequence[Review], test: Sequence[Review], length: int) -> tuple[EncodedReviews, EncodedReviews]:
    """Number the words by their frequency in `train` alone: the test must stay unknown."""
    train_texts, test_texts = ([words_of(review.text) for review in reviews] for reviews in (train, test))
    numbers = number_words(train_texts)
    return (
        EncodedReviews(words=encode(train_texts, numbers, length), labels=_labels(train)),
        EncodedReviews(words=encode(test_texts, numbers, length), labels=_labels(test)),
    )


def _labels(reviews: Sequence[Review]) -> npt.NDArray[np.float32]:
    return np.array([review.label for review in reviews], dtype=np.float32)


def words_of(text: str) -> list[str]:
    """Return the words of `text` in lower case, and its question and exclamation marks."""
    return _WORD.findall(_LINE_BREAK.sub(" ", text.lower()))


def number_words(texts: Iterable[Sequence[str]]) -> dict[str, int]:
    """Return the numbers, from 2, of the most frequent words; of equally frequent ones, the first in the alphabet."""
    counts = Counter(word for words in texts for word in words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: VOCABULARY - 2], start=2)}


def encode(texts: Sequence[Sequence[str]], numbers: Mapping[str, int], length: int) -> npt.NDArray[np.int32]:
    """Return the numbers of the last `length` words of each text, shape (texts, length), padded in front.

    A text without words holds one unknown word, so that no text is padding only.
    """
    encoded = np.full((len(texts), length), PADDING, dtype=np.int32)
    for row, words in zip(encoded, texts, strict=True):
        last = [numbers.get(word, UNKNOWN) for word in words[-length:]] or [UNKNOWN]
        row[-len(last) :] = last
    return encoded


def make_reviews(
    count: int, length: int, random: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return words, shape (count, length), padded in front, and labels, shape (count,)."""
    labels = random.integers(0, 2, count)
    shape = (count, length)
    # Meaningless words. The frequency of a word is inverse to its number, as in Zipf's law: its logarithm is uniform.
    first = 2 + 2 * _TELLING_WORDS
    words: npt.NDArray[np.int64] = (first * (VOCABULARY / first) ** random.random(shape)).astype(np.int64)
    sincere = random.random(shape) < _SINCERE_SHARE
    meant = np.where(sincere, labels[:, np.newaxis], 1 - labels[:, np.newaxis])
    telling = 2 + meant * _TELLING_WORDS + random.integers(0, _TELLING_WORDS, shape)
    words = np.where(random.random(shape) < _TELLING_SHARE, telling, words)
    shortest = (length + 1) // 2
    starts = length - random.integers(shortest, length + 1, count)
    words[np.arange(length) < starts[:, np.newaxis]] = PADDING
    return words.astype(np.int32), labels.astype(np.float32)
