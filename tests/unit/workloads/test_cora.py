from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_workloads.data import cora
from gpuagent_workloads.data.cora import read_cora
from tests.unit.workloads.runs import refusal

CONTENT = b"31336\t0\t1\t0\tNeural_Networks\n1061127\t1\t0\t0\tRule_Learning\n35\t0\t0\t0\tNeural_Networks\n"
CITES = b"35\t31336\n35\t1061127\n"


def write(directory: Path, content: bytes = CONTENT, cites: bytes = CITES) -> Path:
    (directory / "cora.content").write_bytes(content)
    (directory / "cora.cites").write_bytes(cites)
    return directory


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_papers_and_citations_are_read(tmp_path: Path, line_end: bytes) -> None:
    graph = read_cora(write(tmp_path, *(text.replace(b"\n", line_end) for text in (CONTENT, CITES))))
    np.testing.assert_array_equal(graph.words, [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(graph.subjects, [0, 1, 0])
    np.testing.assert_array_equal(graph.citations, [[2, 0], [2, 1]])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\n", "line 1 is no paper"),
        (CONTENT + b"36\t0\t1\tNeural_Networks\n", "line 4 is no paper with the 5 fields"),
        (CONTENT + b"36\t0\t1\t0\t\n", "line 4 is no paper"),
        (CONTENT + b"\t0\t1\t0\tTheory\n", "line 4 is no paper"),
        (CONTENT + b"36\t0\t1\t2\tTheory\n", "line 4 has a word"),
        (CONTENT + b"36\t0\t11\t\tTheory\n", "line 4 has a word"),
        (CONTENT + b"36\t0\t1\t\xd9\xa1\tTheory\n", "line 4 has a word"),
        (CONTENT + b"35\t0\t1\t0\tTheory\n", "line 4 is the second paper of its name"),
        (b"35\t0\tTheory\n36\t1\tTheory\n", "one subject only"),
    ],
)
def test_papers_that_are_not_as_they_must_be_are_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    assert complaint in refusal(read_cora, write(tmp_path, content=content))


@pytest.mark.parametrize(
    ("cites", "complaint"),
    [
        (b"", "is empty"),
        (b"35\t31336\n35\n", "line 2 is no pair of papers"),
        (b"35\t31336\t35\n", "line 1 is no pair"),
        (b"35\t99\n", "line 1 is no pair of papers in cora.content"),
        (b"35 31336\n", "line 1 is no pair"),
    ],
)
def test_citations_that_are_not_as_they_must_be_are_refused(tmp_path: Path, cites: bytes, complaint: str) -> None:
    assert complaint in refusal(read_cora, write(tmp_path, cites=cites))


@given(length=st.integers(0, len(CONTENT) - 1))
def test_papers_that_end_anywhere_too_early_are_refused(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    refusal(read_cora, write(tmp_path_factory.mktemp("cora"), content=CONTENT[:length]))


def test_missing_files_directories_and_huge_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cora.content: No such" in refusal(read_cora, tmp_path)
    write(tmp_path)
    (tmp_path / "cora.cites").unlink()
    assert "cora.cites: No such" in refusal(read_cora, tmp_path)
    (tmp_path / "cora.cites").mkdir()
    assert "directory" in refusal(read_cora, tmp_path)
    monkeypatch.setattr(cora, "MAX_BYTES", 10)
    assert "more than the 10 bytes" in refusal(read_cora, tmp_path)
