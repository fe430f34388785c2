from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gpuagent_workloads.data.tiny_imagenet import list_training_images, read_image
from gpuagent_workloads.errors import DataError
from tests.unit.workloads.runs import refusal


@pytest.fixture(scope="module")
def photograph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "photograph.JPEG"
    values = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(values).save(path)
    return path


def make_class(directory: Path, name: str, images: int) -> None:
    folder = directory / "train" / name / "images"
    folder.mkdir(parents=True)
    for number in range(images):
        (folder / f"{name}_{number}.JPEG").touch()
    (folder / ".DS_Store").touch()


def test_labels_number_the_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, images in (("n02", 2), ("n01", 1), ("n03", 3)):
        make_class(tmp_path, name, images)
    files = list_training_images(tmp_path)
    assert files.labels.tolist() == [0, 1, 1, 2, 2, 2]
    assert [path.name[:3] for path in files.paths] == ["n01", "n02", "n02", "n03", "n03", "n03"]
    assert files.classes == 3


def test_folders_that_hold_no_images_are_refused(tmp_path: Path) -> None:
    complaint = refusal(list_training_images, tmp_path)
    assert "No such file" in complaint
    assert "gpuagent prepare resnet18 --data" in complaint
    (tmp_path / "train").mkdir()
    assert "folders of classes" in refusal(list_training_images, tmp_path)
    make_class(tmp_path, "n01", 0)
    assert "has no images" in refusal(list_training_images, tmp_path)


def test_images_are_scaled_and_grey_ones_get_three_channels(tmp_path: Path) -> None:
    Image.new("L", (40, 64), 200).save(tmp_path / "grey.png")
    image = read_image(tmp_path / "grey.png", 96)
    assert image.shape == (96, 96, 3)
    assert (image == 200).all()


@given(length=st.integers(0, 600))
def test_an_image_that_was_cut_off_is_refused(photograph: Path, length: int) -> None:
    path = photograph.with_name("cut.JPEG")
    path.write_bytes(photograph.read_bytes()[:length])
    with pytest.raises(DataError, match=r"cut\.JPEG"):
        read_image(path, 64)


def test_images_that_would_fill_the_memory_and_other_formats_are_refused(tmp_path: Path) -> None:
    Image.new("L", (5000, 5000)).save(tmp_path / "bomb.png")
    assert "5000 × 5000 pixels" in refusal(read_image, tmp_path / "bomb.png", 64)
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png", format="GIF")
    assert "cannot identify" in refusal(read_image, tmp_path / "image.png", 64)


def test_imagenets_own_folders_are_read(tmp_path: Path) -> None:
    for name in ("train/n01440764/n01440764_1.JPEG", "train/n01443537/n01443537_7.JPEG"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    files = list_training_images(tmp_path)
    assert [path.name for path in files.paths] == ["n01440764_1.JPEG", "n01443537_7.JPEG"]
    assert (files.classes, files.labels.tolist()) == (2, [0, 1])
