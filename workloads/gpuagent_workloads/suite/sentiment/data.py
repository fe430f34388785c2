"""Reviews for the sentiment workload as numbers: real ones, or synthetic ones of the same shape.

Real ones are the folders of aclImdb (the large movie review dataset), `train/pos`, `train/neg`, `test/pos` and
`test/neg` with a text file for each review; or tab-separated values, `train.tsv` and `test.tsv`, each line a label (pos
or 1, neg or 0), a tab, and the text. All in UTF-8.
"""

import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.data.download import RemoteFile, damage_reported, fetch, notify, read_file
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC

Part = Literal["train", "test"]

PARTS: tuple[Part, ...] = ("train", "test")

# Longer reviews are refused; the longest of aclImdb has 14 KB.
MAX_REVIEW_BYTES = 1 << 20

# Larger files are refused; aclImdb's 25,000 training reviews have 33 MB.
MAX_TABLE_BYTES = 1 << 30

_LABELS = {"neg": 0, "0": 0, "pos": 1, "1": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A text and its author's opinion of the film."""

    text: str
    # 0: bad; 1: good.
    label: int


def read_reviews(directory: Path, part: Part) -> list[Review]:
    """Return the reviews to train on or to test on; some are bad and some are good.

    Raises DataError: they are missing, too large, or in another format.
    """
    table = directory / f"{part}.tsv"
    if table.is_file():
        reviews = list(_read_table(table))
    elif (directory / part).is_dir():
        reviews = [review for name in ("neg", "pos") for review in _read_folder(directory / part / name)]
    else:
        raise DataError(
            f"{directory} has neither {part}.tsv nor a folder {part}: "
            f"`gpuagent prepare sentiment --data {directory}` fetches it"
        )
    if {review.label for review in reviews} != {0, 1}:
        raise DataError(f"{directory} needs both bad and good reviews to {part} on")
    return reviews


def convert_archive(archive: Path, directory: Path) -> None:
    """Write `train.tsv` and `test.tsv` into `directory` from aclImdb_v1.tar.gz, which holds 50,000 small files.

    The archive's paths are never written to, so they cannot do harm.

    Raises:
        DataError: the archive is damaged or holds no such reviews.
        OSError: a file cannot be read or written.
    """
    lines: dict[str, list[str]] = {part: [] for part in PARTS}
    with damage_reported(archive), tarfile.open(archive, "r|gz") as members:
        for member in members:
            place = re.fullmatch(r"(?:\./)?aclImdb/(train|test)/(pos|neg)/[^/]+\.txt", member.name)
            content = members.extractfile(member) if place and member.isreg() else None
            if place and content:
                text = _decode(content.read(MAX_REVIEW_BYTES + 1), f"{member.name} in {archive}")
                lines[place[1]].append(f"{place[2]}\t{' '.join(text.split())}\n")
    if not all(lines.values()):
        raise DataError(f"{archive} holds no reviews in aclImdb's folders")
    for part, texts in lines.items():
        unfinished = directory / f"{part}.tsv.part"
        unfinished.write_text("".join(texts), encoding="utf-8", newline="\n")
        unfinished.replace(directory / f"{part}.tsv")


def _read_table(path: Path) -> Iterator[Review]:
    content = read_file(path, MAX_TABLE_BYTES)
    if not content.endswith(b"\n"):
        raise DataError(f"{path} is {'truncated: its last line has no end' if content else 'empty'}")
    # Not splitlines(): that would also split at control characters and at Unicode's separators, which reviews contain.
    for number, line in enumerate(content[:-1].split(b"\n"), start=1):
        where = f"{path} line {number}"
        label, tab, text = _decode(line.removesuffix(b"\r"), where).partition("\t")
        if not tab or label not in _LABELS:
            raise DataError(f"{where} does not begin with pos, neg, 1 or 0 and a tab")
        yield Review(text=text, label=_LABELS[label])


def _read_folder(folder: Path) -> Iterator[Review]:
    label = _LABELS[folder.name]
    try:
        # Only regular files: reading from a named pipe would wait for ever.
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".txt" and path.is_file())
    except OSError as error:
        raise DataError(f"cannot read {folder}: {error.strerror or error}") from error
    for path in paths:
        yield Review(text=_decode(read_file(path, MAX_REVIEW_BYTES), str(path)), label=label)


def _decode(content: bytes, where: str) -> str:
    """Return the text of one review."""
    if len(content) > MAX_REVIEW_BYTES:
        raise DataError(f"{where} has more than the {MAX_REVIEW_BYTES} bytes that are accepted of a review")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8: {error.reason} at byte {error.start}") from error


SYNTHETIC_TRAIN, SYNTHETIC_TEST = 10_000, 1_000

MIRRORS = ("https://ai.stanford.edu/~amaas/data/sentiment",)

# Size and checksum as TensorFlow Datasets has them.
ARCHIVE = RemoteFile(
    name="aclImdb_v1.tar.gz",
    size_bytes=84_125_825,
    sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
)

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

    Raises:
        DataError: the reviews are missing or damaged.
    """
    if source != SYNTHETIC:
        reporter.result("data_source", f"reviews in {source}")
        train, test = (read_reviews(Path(source), part) for part in PARTS)
        train_texts, test_texts = ([words_of(review.text) for review in reviews] for reviews in (train, test))
        numbers = number_words(train_texts)
        return (
            EncodedReviews(words=encode(train_texts, numbers, length), labels=_labels(train)),
            EncodedReviews(words=encode(test_texts, numbers, length), labels=_labels(test)),
        )
    reporter.result("data_source", f"synthetic reviews, made from seed {seed}")
    words, labels = make_reviews(SYNTHETIC_TRAIN + SYNTHETIC_TEST, length, np.random.default_rng(seed))
    return (
        EncodedReviews(words=words[:SYNTHETIC_TRAIN], labels=labels[:SYNTHETIC_TRAIN]),
        EncodedReviews(words=words[SYNTHETIC_TRAIN:], labels=labels[SYNTHETIC_TRAIN:]),
    )


def fetch_reviews(directory: Path, mirrors: Sequence[str]) -> None:
    """Fetch aclImdb's archive from `mirrors` or, if there are none, from its authors, and convert it.

    Nothing is fetched when both tables are there: a table gets its name only when it is complete. Raises DataError: no
    mirror has it intact, or the disk is full.
    """
    if all((directory / f"{part}.tsv").is_file() for part in PARTS):
        notify(f"{directory} holds it already")
        return
    fetch(ARCHIVE, mirrors or MIRRORS, directory)
    try:
        notify(f"converting {ARCHIVE.name}")
        convert_archive(directory / ARCHIVE.name, directory)
        (directory / ARCHIVE.name).unlink()
    except OSError as error:
        raise DataError(f"cannot write to {directory}: {error.strerror or error}") from error


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
