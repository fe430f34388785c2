import os
import pickle
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_workloads.data.cifar import IMAGE_BYTES, parse_binary, parse_pickle, read_cifar10
from gpuagent_workloads.errors import DataError

LABELS = np.array([3, 9, 0], np.uint8)
PLANES = np.random.default_rng(1).integers(0, 256, (3, IMAGE_BYTES), dtype=np.uint8)


def binary(labels: npt.NDArray[np.uint8], planes: npt.NDArray[np.uint8]) -> bytes:
    return np.hstack([labels[:, None], planes]).tobytes()


def pickled(labels: npt.NDArray[np.uint8], planes: npt.NDArray[np.uint8], element: bytes = b"u1") -> bytes:
    """As Python 2 and its numpy wrote the original files."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    element_type = (
        b"cnumpy\ndtype\n(U\x02" + element + b"K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    shape = b"(K" + bytes([len(planes)]) + b"M\x00\x0ct"
    content = b"T" + struct.pack("<I", planes.size) + planes.tobytes()
    numbers = b"".join(b"K" + bytes([label]) for label in labels)
    fields = b"U\x04data" + array + b"(K\x01" + shape + element_type + b"\x89" + content + b"tbU\x06labels](" + numbers
    return b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03" + fields + b"eu."


PICKLE = pickled(LABELS, PLANES)


@pytest.fixture(params=["binary", "pickle", "pickle of Python 3"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two files to train on and one to test on, in one of the forms."""
    contents = {
        "binary": binary(LABELS, PLANES),
        "pickle": PICKLE,
        "pickle of Python 3": pickle.dumps({"data": PLANES, "labels": LABELS.tolist()}, protocol=4),
    }
    suffix = ".bin" if request.param == "binary" else ""
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        (tmp_path / f"{name}{suffix}").write_bytes(contents[request.param])
    (tmp_path / "batches.meta").write_bytes(b"not read")
    return tmp_path


def test_all_forms_are_read_alike(directory: Path) -> None:
    train, test = read_cifar10(directory)
    assert train.labels.tolist() == [3, 9, 0, 3, 9, 0]
    assert test.labels.tolist() == [3, 9, 0]
    assert test.images.shape == (3, 32, 32, 3)
    # Pixel (row 1, column 2) of the second image: its red, green and blue planes one after the other.
    assert test.images[1, 1, 2].tolist() == [PLANES[1, plane * 1024 + 34] for plane in range(3)]


def refusal(directory: Path, name: str, content: bytes) -> str:
    for other in ("data_batch_1", "test_batch"):
        (directory / f"{other}{Path(name).suffix}").write_bytes(content)
    with pytest.raises(DataError) as refused:
        read_cifar10(directory)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("data_batch_1.bin", b"", "0 bytes"),
        ("data_batch_1.bin", binary(LABELS, PLANES)[:-1], "does not consist of records"),
        ("data_batch_1.bin", binary(np.array([1, 10, 2], np.uint8), PLANES), "a label 10"),
        ("data_batch_1", b"", "not a pickle of CIFAR-10"),
        ("data_batch_1", PICKLE[:-100], "not a pickle of CIFAR-10"),
        ("data_batch_1", pickled(LABELS[:2], PLANES), "2 labels for 3 images"),
        ("data_batch_1", pickled(np.array([1, 10, 2], np.uint8), PLANES), "a label 10"),
        ("data_batch_1", pickled(LABELS, PLANES, element=b"O8"), "not an array of bytes"),
        ("data_batch_1", pickled(LABELS, PLANES[:, :-1]), "no array of whole images"),
        (
            "data_batch_1",
            pickle.dumps({"data": PLANES.tobytes(), "labels": LABELS.tolist()}),
            "no array of whole images",
        ),
        ("data_batch_1", pickle.dumps([1, 2]), "no array of whole images"),
        ("data_batch_1", pickle.dumps({"data": b"", "labels": [-1]}), "no array"),
        # A number for which the interpreter would take 32 GB of memory.
        ("data_batch_1", b"\x80\x02]r\xff\xff\xff\xff.", "numbers 4294967295 places"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    assert complaint in refusal(tmp_path, name, content)


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.command = f"touch {path}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_a_command_is_refused_and_does_not(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps({"data": Hostile(tmp_path / "ran"), "labels": [1]}, protocol=protocol)
    assert "posix.system, which CIFAR-10 does not need" in refusal(tmp_path, "data_batch_1", content)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "wanted", [b"builtins\neval", b"numpy\nload", b"numpy.core.multiarray\nfromfile", b"os\nremove"]
)
def test_whatever_else_a_pickle_names_is_refused(wanted: bytes) -> None:
    with pytest.raises(ValueError, match="does not need"):
        parse_pickle(b"\x80\x02c" + wanted + b"\n.")


@given(content=st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(content: bytes) -> None:
    for parse in (parse_binary, parse_pickle):
        with pytest.raises(ValueError, match=r"not a pickle|no (array|list)|not consist of records"):
            parse(content)


@given(position=st.integers(0, 200), value=st.integers(1, 255))
def test_a_pickle_with_a_changed_byte_is_refused_or_still_holds_images_and_labels(position: int, value: int) -> None:
    content = bytearray(PICKLE)
    content[position] ^= value
    try:
        labels, images = parse_pickle(bytes(content))
    except ValueError as error:
        assert str(error).startswith(("is not a pickle", "has no"))
    else:
        assert labels.dtype == np.uint8
        assert images.shape[1] == IMAGE_BYTES


def test_a_directory_without_the_files_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(binary(LABELS, PLANES))
    with pytest.raises(DataError, match="gpuagent prepare cifar10 --data"):
        read_cifar10(tmp_path)
