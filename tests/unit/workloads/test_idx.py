import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from gpuagent_workloads.errors import DataError
from gpuagent_workloads.suite.mnist.data import read_idx
from tests.unit.workloads.runs import idx_bytes, refusal

VALID = idx_bytes(np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4))


def pack(content: bytes, packed: bool) -> bytes:
    return gzip.compress(content, compresslevel=1) if packed else content


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx") / "some-images-idx3-ubyte"


def refused_idx(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    complaint = refusal(read_idx, path, (3, 4))
    assert str(path) in complaint
    return complaint


@given(
    values=st_numpy.arrays(np.uint8, st_numpy.array_shapes(min_dims=1, max_dims=4, max_side=6)), packed=st.booleans()
)
def test_values_are_read_back(path: Path, values: npt.NDArray[np.uint8], packed: bool) -> None:
    path.write_bytes(pack(idx_bytes(values), packed))
    np.testing.assert_array_equal(read_idx(path, values.shape[1:]), values)


@given(length=st.integers(0, len(VALID) - 1), packed=st.booleans())
def test_a_file_that_ends_anywhere_too_early_is_refused(path: Path, length: int, packed: bool) -> None:
    refused_idx(path, pack(VALID[:length], packed))


@given(data=st.data())
def test_a_gzip_file_that_was_cut_off_is_refused(path: Path, data: st.DataObject) -> None:
    packed = pack(VALID, packed=True)
    refused_idx(path, packed[: data.draw(st.integers(0, len(packed) - 1))])


@given(trail=st.binary(min_size=1), packed=st.booleans())
def test_a_file_that_goes_on_is_refused(path: Path, trail: bytes, packed: bool) -> None:
    assert "goes on" in refused_idx(path, pack(VALID + trail, packed))


@given(position=st.integers(0, 15), value=st.integers(0, 255))
def test_any_change_to_the_header_is_refused(path: Path, position: int, value: int) -> None:
    if VALID[position] != value:
        refused_idx(path, VALID[:position] + bytes([value]) + VALID[position + 1 :])


@given(position=st.integers(0, 200), value=st.integers(1, 255))
def test_a_damaged_gzip_file_is_refused_or_still_holds_the_same(path: Path, position: int, value: int) -> None:
    packed = bytearray(pack(VALID, packed=True))
    packed[position % len(packed)] ^= value
    path.write_bytes(packed)
    try:
        values = read_idx(path, (3, 4))
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert values.tobytes() == VALID[16:]


def test_a_file_that_claims_more_than_is_accepted_is_refused_before_it_is_read(path: Path) -> None:
    header = b"\x00\x00\x08\x03" + (0xFFFFFFFF).to_bytes(4, "big") + (3).to_bytes(4, "big") + (4).to_bytes(4, "big")
    assert "claims to hold" in refused_idx(path, header)


def test_a_small_gzip_file_that_unpacks_to_more_than_it_claims_is_refused(path: Path) -> None:
    assert "goes on" in refused_idx(path, pack(VALID + bytes(50_000_000), packed=True))


def test_a_missing_file_and_a_directory_are_refused(path: Path, tmp_path: Path) -> None:
    assert "No such file" in refusal(read_idx, path.with_name("missing"), ())
    assert "directory" in refusal(read_idx, tmp_path, ())
