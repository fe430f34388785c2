from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from gpuagent_workloads.data.cifar import IMAGE_BYTES, read_cifar10
from gpuagent_workloads.errors import DataError

LABELS = np.array([3, 9, 0], np.uint8)
PLANES = np.random.default_rng(1).integers(0, 256, (3, IMAGE_BYTES), dtype=np.uint8)


def binary(labels: npt.NDArray[np.uint8], planes: npt.NDArray[np.uint8]) -> bytes:
    return np.hstack([labels[:, None], planes]).tobytes()


def test_pixels_and_labels_are_in_their_places(tmp_path: Path) -> None:
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        (tmp_path / f"{name}.bin").write_bytes(binary(LABELS, PLANES))
    train, test = read_cifar10(tmp_path)
    assert train.labels.tolist() == [3, 9, 0, 3, 9, 0]
    assert test.labels.tolist() == [3, 9, 0]
    assert test.images.shape == (3, 32, 32, 3)
    # Pixel (row 1, column 2) of the second image: its red, green and blue planes one after the other.
    assert test.images[1, 1, 2].tolist() == [PLANES[1, plane * 1024 + 34] for plane in range(3)]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "0 bytes"),
        (binary(LABELS, PLANES)[:-1], "does not consist of records"),
        (binary(np.array([1, 10, 2], np.uint8), PLANES), "a label 10"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    for other in ("data_batch_1", "test_batch"):
        (tmp_path / f"{other}.bin").write_bytes(content)
    with pytest.raises(DataError) as refused:
        read_cifar10(tmp_path)
    assert "\n" not in str(refused.value)
    assert complaint in str(refused.value)


def test_a_directory_without_the_files_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(binary(LABELS, PLANES))
    with pytest.raises(DataError, match="gpuagent prepare cifar10 --data"):
        read_cifar10(tmp_path)
