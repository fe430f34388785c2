import re
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_workloads.data.download import Contents, unpack
from gpuagent_workloads.errors import DataError
from tests.unit.workloads.archives import Named, gzipped_tar, zipped

CONTENTS = Contents(pattern=re.compile(r"set/((?:train/)?[ab]\.bin)"), files=2, max_bytes=4000)

FILES: list[Named] = [("set/a.bin", b"a" * 3000), ("set/train/b.bin", b"b" * 1000)]

ARCHIVES = {"set.tar.gz": gzipped_tar(FILES), "set.zip": zipped(FILES, stat.S_IFREG | 0o644)}

OTHERWISE_COMPRESSED = {
    "bzip2.zip": zipped(FILES, compression=zipfile.ZIP_BZIP2),
    "lzma.zip": zipped(FILES, compression=zipfile.ZIP_LZMA),
}


def unpacked(directory: Path, name: str, content: bytes) -> dict[str, bytes]:
    """What comes out of an archive of that name and content."""
    archive, target = directory / name, directory / "unpacked"
    archive.write_bytes(content)
    target.mkdir()
    unpack(archive, CONTENTS, target)
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def refusal(directory: Path, name: str, content: bytes) -> str:
    with pytest.raises(DataError) as refused:
        unpacked(directory, name, content)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("name", ARCHIVES)
def test_files_are_taken_out_of_their_folder(tmp_path: Path, name: str) -> None:
    assert unpacked(tmp_path, name, ARCHIVES[name]) == {"a.bin": b"a" * 3000, "train/b.bin": b"b" * 1000}


@pytest.mark.parametrize("pack", [gzipped_tar, zipped])
@pytest.mark.parametrize(
    "name", ["../a.bin", "/tmp/a.bin", "set/../../a.bin", "set/train/../a.bin", "c.bin", "set/c\n"]
)
def test_whatever_else_an_archive_holds_stays_in_it(tmp_path: Path, pack: type, name: str) -> None:
    suffix = "set.zip" if pack is zipped else "set.tar.gz"
    assert unpacked(tmp_path, suffix, pack([(name, b"evil"), *FILES])).keys() == {"a.bin", "train/b.bin"}
    assert {path.name for path in tmp_path.iterdir()} == {suffix, "unpacked"}


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_what_is_no_regular_file_stays_in_a_tar_archive(tmp_path: Path, kind: bytes) -> None:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname, info.size = kind, "/etc/passwd", 0

    assert "0 of the 2 expected files" in refusal(tmp_path, "set.tar.gz", gzipped_tar(FILES, change))


def test_a_link_in_a_zip_archive_becomes_a_file(tmp_path: Path) -> None:
    link = [("set/a.bin", b"/etc/passwd"), FILES[1]]
    assert unpacked(tmp_path, "set.zip", zipped(link, stat.S_IFLNK | 0o777))["a.bin"] == b"/etc/passwd"
    assert not (tmp_path / "unpacked" / "a.bin").is_symlink()


@pytest.mark.parametrize(("name", "pack"), [("set.tar.gz", gzipped_tar), ("set.zip", zipped)])
def test_more_than_is_expected_is_not_written(tmp_path: Path, name: str, pack: type) -> None:
    bomb = pack([FILES[1], ("set/a.bin", bytes(1 << 24))])
    assert "larger than" in refusal(tmp_path, name, bomb)
    assert sum(path.stat().st_size for path in (tmp_path / "unpacked").rglob("*.bin")) <= CONTENTS.max_bytes


def test_an_archive_without_all_of_the_files_is_refused(tmp_path: Path) -> None:
    assert "1 of the 2 expected files" in refusal(tmp_path, "set.tar.gz", gzipped_tar(FILES[:1]))


@pytest.mark.parametrize("name", [*ARCHIVES, *OTHERWISE_COMPRESSED])
@given(data=st.data())
def test_a_damaged_archive_is_refused_or_gives_all_of_its_files(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    damaged = bytearray((ARCHIVES | OTHERWISE_COMPRESSED)[name])
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= data.draw(st.integers(1, 255))
    try:
        files = unpacked(tmp_path_factory.mktemp("damaged"), name, bytes(damaged))
    except DataError as error:
        assert name in str(error) or "set/" in str(error)
    else:
        assert len(files) == CONTENTS.files


@pytest.mark.parametrize("name", ARCHIVES)
@given(data=st.data())
def test_a_cut_archive_is_refused(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    # The last bytes of a tar archive are padding and a checksum that is not needed.
    length = data.draw(st.integers(0, len(ARCHIVES[name]) // 2))
    refusal(tmp_path_factory.mktemp("cut"), name, ARCHIVES[name][:length])
