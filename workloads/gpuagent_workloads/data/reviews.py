"""Readers of labelled reviews: the folders of aclImdb (the large movie review dataset), or tab-separated values.

Folders: `train/pos`, `train/neg`, `test/pos` and `test/neg` with a text file for each review. Tab-separated values:
`train.tsv` and `test.tsv`, each line a label (pos or 1, neg or 0), a tab, and the text. All in UTF-8.
"""

import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from gpuagent_workloads.data import read_file
from gpuagent_workloads.data.unpack import DAMAGE
from gpuagent_workloads.errors import DataError

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

    Raises:
        DataError: they are missing, too large, or in another format.
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
        DataError: the archive is damaged or holds no such reviews, or the files cannot be written.
    """
    parts = {part: directory / f"{part}.tsv.part" for part in PARTS}
    try:
        with ExitStack() as stack:
            streams = {
                part: stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
                for part, path in parts.items()
            }
            written = _convert(archive, streams)
    except DAMAGE as error:
        raise DataError(f"{archive} is a damaged archive ({error}): fetch it again") from error
    except OSError as error:
        raise DataError(f"cannot convert {archive}: {error.strerror or error}") from error
    if written != set(PARTS):
        raise DataError(f"{archive} holds no reviews in aclImdb's folders")
    for part, path in parts.items():
        path.replace(directory / f"{part}.tsv")


def _convert(archive: Path, streams: Mapping[Part, TextIO]) -> set[Part]:
    written: set[Part] = set()
    with tarfile.open(archive, "r|gz") as members:
        for member in members:
            place = re.fullmatch(r"(?:\./)?aclImdb/(train|test)/(pos|neg)/[^/]+\.txt", member.name)
            content = members.extractfile(member) if place and member.isreg() else None
            if place is None or content is None:
                continue
            text = _decode(content.read(MAX_REVIEW_BYTES + 1), f"{member.name} in {archive}")
            part: Part = "train" if place[1] == "train" else "test"
            streams[part].write(f"{place[2]}\t{' '.join(text.split())}\n")
            written.add(part)
    return written


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
