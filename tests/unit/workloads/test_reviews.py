import os
import tarfile
from pathlib import Path

import pytest

from gpuagent_workloads.errors import DataError
from gpuagent_workloads.suite.sentiment import data
from gpuagent_workloads.suite.sentiment.data import Review, convert_archive, read_reviews
from tests.unit.workloads.archives import gzipped_tar
from tests.unit.workloads.runs import refusal

GOOD, BAD = Review(text="A fine film.", label=1), Review(text="Dull, très dull.", label=0)


def write_folders(directory: Path) -> None:
    for part in ("train", "test"):
        for name, review in (("pos", GOOD), ("neg", BAD)):
            folder = directory / part / name
            folder.mkdir(parents=True)
            (folder / "0_9.txt").write_text(review.text, encoding="utf-8")
            (folder / "README").write_text("no review", encoding="utf-8")


def test_folders_are_read(tmp_path: Path) -> None:
    write_folders(tmp_path)
    assert read_reviews(tmp_path, "train") == read_reviews(tmp_path, "test") == [BAD, GOOD]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_tables_are_read(tmp_path: Path, line_end: str) -> None:
    lines = ["pos\tA fine film.", "0\tDull, très dull.", "1\ta\tb\u2028c\x85d", "neg\t"]
    (tmp_path / "train.tsv").write_bytes("".join(line + line_end for line in lines).encode())
    odd, empty = Review(text="a\tb\u2028c\x85d", label=1), Review(text="", label=0)
    assert read_reviews(tmp_path, "train") == [GOOD, BAD, odd, empty]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"pos\tfine\nneg\tdu", "truncated"),
        (b"pos\tfine\nneg dull\n", "line 2 does not begin with"),
        (b"pos\tfine\n2\tdull\n", "line 2 does not begin with"),
        (b"pos\tfine\n\n", "line 2 does not begin with"),
        (b"pos\tfine\nneg\tdull \xff\n", "line 2 is not UTF-8: invalid start byte at byte 9"),
        (b"pos\tfine\npos\tgreat\n", "needs both bad and good reviews to train on"),
    ],
)
def test_tables_that_are_not_as_they_must_be_are_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "train.tsv").write_bytes(content)
    assert complaint in refusal(read_reviews, tmp_path, "train")


def test_a_missing_directory_gets_a_remedy(tmp_path: Path) -> None:
    assert f"prepare sentiment --data {tmp_path}" in refusal(read_reviews, tmp_path, "train")


def test_missing_and_empty_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train" / "neg").mkdir(parents=True)
    assert "pos: No such file or directory" in refusal(read_reviews, tmp_path, "train")
    (tmp_path / "train" / "pos").mkdir()
    assert "needs both bad and good" in refusal(read_reviews, tmp_path, "train")


def test_hostile_files_in_folders_are_refused_or_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folders(tmp_path)
    folder = tmp_path / "train" / "pos"
    os.mkfifo(folder / "pipe.txt")
    (folder / "directory.txt").mkdir()
    assert read_reviews(tmp_path, "train") == [BAD, GOOD]
    (folder / "bytes.txt").write_bytes(b"\x80")
    assert "bytes.txt is not UTF-8" in refusal(read_reviews, tmp_path, "train")
    monkeypatch.setattr(data, "MAX_REVIEW_BYTES", 5)
    assert "more than the 5 bytes" in refusal(read_reviews, tmp_path, "train")


def test_tables_and_reviews_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.tsv").write_bytes(b"pos\tfine\nneg\tdull\n")
    monkeypatch.setattr(data, "MAX_REVIEW_BYTES", 5)
    assert "line 1 has more than the 5 bytes that are accepted of a review" in refusal(read_reviews, tmp_path, "train")
    monkeypatch.setattr(data, "MAX_TABLE_BYTES", 17)
    assert "train.tsv has more than the 17 bytes" in refusal(read_reviews, tmp_path, "train")


def test_an_archive_becomes_tables_without_being_unpacked(tmp_path: Path) -> None:
    members = {
        "aclImdb/train/pos/1_9.txt": b"A fine\nfilm.\t",
        "aclImdb/train/neg/2_1.txt": "Dull, très dull.".encode(),
        "./aclImdb/test/pos/1_9.txt": b"A fine film.",
        "aclImdb/test/neg/2_1.txt": "Dull, très dull.".encode(),
        "aclImdb/train/unsup/3_0.txt": b"not labelled",
        "aclImdb/train/pos/../../../escaped.txt": b"hostile",
        "/etc/aclImdb/train/pos/4_9.txt": b"hostile",
    }
    (tmp_path / "archive").write_bytes(gzipped_tar(members.items()))
    convert_archive(tmp_path / "archive", tmp_path)
    assert read_reviews(tmp_path, "train") == [GOOD, BAD]
    assert read_reviews(tmp_path, "test") == [GOOD, BAD]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "test.tsv", "train.tsv"]


def test_links_in_an_archive_are_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "archive", "w:gz") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("aclImdb/train/pos/1_9.txt")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    with pytest.raises(DataError, match="holds no reviews"):
        convert_archive(tmp_path / "archive", tmp_path)


def test_a_damaged_archive_leaves_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    content = gzipped_tar([("aclImdb/train/pos/1_9.txt", os.urandom(3000).hex().encode())])
    for damaged in (b"", b"no archive", content[:-700], content[:100]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=str(path)):
            convert_archive(path, tmp_path)
    assert not list(tmp_path.glob("*.tsv"))
