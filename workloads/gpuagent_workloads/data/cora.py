"""The reader of a citation graph in the format of the original Cora: `cora.content` and `cora.cites`.

Each line of `cora.content` is a paper: its name, a 0 or 1 for each word of the dictionary, and its subject. Each line
of `cora.cites` is a citation: the name of the cited paper, then of the citing one. Tabs separate the fields.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.data.download import Contents, Dataset, RemoteFile, read_file
from gpuagent_workloads.errors import DataError

# Larger files are refused before they are read; Cora's have 7.8 MB and 68 KB.
MAX_BYTES = 256 << 20


# Of the original Cora, from its README and from examples of Keras and PyTorch, which read the same files.
ORIGINAL_FIGURES = {
    "papers": 2708,
    "words of the dictionary": 1433,
    "words in all papers": 49_216,
    "papers by subject": [298, 418, 818, 426, 217, 180, 351],
    "citations": 5429,
    "pairs of papers of which one cites the other": 5278,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CitationGraph:
    """Papers with their words, subjects and citations."""

    # 0 or 1, shape (papers, words of the dictionary).
    words: npt.NDArray[np.uint8]
    # From 0, in alphabetical order of their names, shape (papers,).
    subjects: npt.NDArray[np.int64]
    # Positions of the cited and of the citing paper, shape (citations, 2), in the order of the file.
    citations: npt.NDArray[np.int64]


def read_cora(directory: Path) -> CitationGraph:
    """Return the graph in `directory`.

    Raises DataError: a file is missing, too large, or not exactly of that format.
    """
    content_path, cites_path = directory / "cora.content", directory / "cora.cites"
    papers = _rows(content_path)
    names: dict[bytes, int] = {}
    for position, paper in enumerate(papers):
        if len(paper) < 3 or len(paper) != len(papers[0]) or not paper[0] or not paper[-1]:
            raise DataError(
                f"{content_path} line {position + 1} is no paper with the {len(papers[0])} fields of the first"
            )
        if names.setdefault(paper[0], position) != position:
            raise DataError(f"{content_path} line {position + 1} is the second paper of its name")
    subjects = sorted({paper[-1] for paper in papers})
    if len(subjects) < 2:
        raise DataError(f"{content_path} has papers of one subject only: there is nothing to learn")
    rows = _rows(cites_path)
    for number, row in enumerate(rows, start=1):
        if len(row) != 2 or not names.keys() >= set(row):
            raise DataError(f"{cites_path} line {number} is no pair of papers in cora.content")
    return CitationGraph(
        words=_words(content_path, papers),
        subjects=np.array([subjects.index(paper[-1]) for paper in papers], dtype=np.int64),
        citations=np.array([[names[cited], names[citing]] for cited, citing in rows], dtype=np.int64),
    )


def check_original(directory: Path) -> None:
    """Check that the graph in `directory` has the figures of the original Cora. Raises DataError where it is not."""
    for name, found in figures(read_cora(directory)).items():
        if found != ORIGINAL_FIGURES[name]:
            raise DataError(f"the graph in {directory} is not Cora: {name}: {found}, not {ORIGINAL_FIGURES[name]}")


def figures(graph: CitationGraph) -> dict[str, int | list[int]]:
    """Return the figures that distinguish a citation graph from others."""
    return {
        "papers": len(graph.words),
        "words of the dictionary": graph.words.shape[1],
        "words in all papers": int(graph.words.sum(dtype=np.int64)),
        "papers by subject": np.bincount(graph.subjects).tolist(),
        "citations": len(graph.citations),
        "pairs of papers of which one cites the other": len(np.unique(np.sort(graph.citations, axis=1), axis=0)),
    }


CORA = Dataset(
    # Neither checksum nor size is published, so the graph itself is checked before it is put into place.
    archive=RemoteFile(name="cora.tgz", size_bytes=None, sha256=None),
    mirrors=("https://linqs-data.soe.ucsc.edu/public/lbc", "http://www.cs.umd.edu/~sen/lbc-proj/data"),
    contents=Contents(pattern=re.compile(r"(?:\./)?cora/(cora\.(?:content|cites))"), files=2, max_bytes=1 << 24),
    check=check_original,
)


def _rows(path: Path) -> list[list[bytes]]:
    content = read_file(path, MAX_BYTES, f"; `gpuagent prepare gcn --data {path.parent}` fetches Cora's files")
    if not content.endswith(b"\n"):
        raise DataError(f"{path} is {'truncated: its last line has no end' if content else 'empty'}")
    return [line.split(b"\t") for line in content.replace(b"\r\n", b"\n")[:-1].split(b"\n")]


def _words(path: Path, papers: Sequence[Sequence[bytes]]) -> npt.NDArray[np.uint8]:
    words = np.empty((len(papers), len(papers[0]) - 2), dtype=np.uint8)
    for position, paper in enumerate(papers):
        flags = paper[1:-1]
        if not {b"0", b"1"}.issuperset(flags):
            raise DataError(f"{path} line {position + 1} has a word that is neither 0 nor 1")
        words[position] = np.frombuffer(b"".join(flags), dtype=np.uint8) - ord("0")
    return words
