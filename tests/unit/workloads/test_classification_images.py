"""What a classification workload does to its images, and the accuracies that it reports."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.classification import ClassificationConfig
from gpuagent_workloads.suite.classification.sources import open_source
from gpuagent_workloads.training.images import hits, named_accuracies
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.progress import Progress
from tests.unit.workloads.runs import of_kind, results_of, run_config

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's folders, of three classes with two images to train on and one to test on; their left half is dark."""
    directory = tmp_path_factory.mktemp("imagenet")
    for number, name in enumerate(("n01440764", "n01443537", "n01484850")):
        for part, count in (("train", 2), ("val", 1)):
            folder = directory / part / name
            folder.mkdir(parents=True)
            for image in range(count):
                pixels = np.full((80, 100, 3), 100 + 50 * number, dtype=np.uint8)
                pixels[:, :50] = 0
                Image.fromarray(pixels).save(folder / f"{name}_{image}.JPEG")
    return directory


def images_of(directory: Path, batches: int, **parameters: Any) -> torch.Tensor:
    """The first images to train on."""
    config = ClassificationConfig(data=str(directory), image_size=64, batch_size=3, **parameters)
    source = open_source(config, Reporter(None))
    order = Order(len(source), config, Progress())
    return torch.cat([images for images, _ in islice(source.batches(order, CPU), batches)])


def test_images_are_mirrored_at_random_the_same_whatever_the_number_of_workers(imagenet: Path) -> None:
    as_they_are = images_of(imagenet, 4, workers=0)
    flipped = images_of(imagenet, 4, workers=0, flip=True)
    mirrored = [not torch.equal(*pair) for pair in zip(as_they_are, flipped, strict=True)]
    assert {True, False} == set(mirrored)
    for image, other, is_mirrored in zip(as_they_are, flipped, mirrored, strict=True):
        assert torch.equal(other, image.flip(1) if is_mirrored else image)
    assert torch.equal(flipped, images_of(imagenet, 4, workers=2, flip=True))


def test_images_are_cropped_anew_each_time(imagenet: Path) -> None:
    first, second = images_of(imagenet, 4, workers=0, crop=True).split(6)
    # A part may lie within one half, and no two parts are the same.
    assert len({image.numpy().tobytes() for image in (*first, *second)}) > 6


def test_synthetic_images_cannot_be_changed() -> None:
    with pytest.raises(MisuseError, match="--crop and --flip need --data"):
        ClassificationConfig(flip=True)


def test_accuracies_are_those_counted_by_hand() -> None:
    scores = torch.tensor([[9, 8, 7, 6, 5, 4], [1, 2, 3, 4, 5, 6], [3, 9, 1, 2, 5, 4], [6, 5, 4, 3, 2, 1]]).float()
    # First; last, and so not among five; third; fifth.
    labels = torch.tensor([0, 0, 5, 4])
    assert hits(scores, labels).tolist() == [1, 3]
    assert {name: value.item() for name, value in named_accuracies(hits(scores, labels), 4).items()} == {
        "accuracy": 25,
        "top5_accuracy": 75,
    }
    # Of two classes, both are among the best five.
    assert hits(scores[:, :2], torch.tensor([1, 1, 1, 1])).tolist() == [2, 4]


def test_training_and_test_report_top_1_and_top_5(imagenet: Path, tmp_path: Path) -> None:
    small = {"device": "cpu", "image_size": 64, "batch_size": 2, "warmup": 0, "threads": 1, "classes": 10}
    images = {"data": str(imagenet), "workers": 0, "crop": True, "flip": True, "test_images": 3}
    events = run_config("resnet18", tmp_path, steps=11, **small, **images)
    results = results_of(events)
    assert results["data_source"] == f"6 image files of 3 classes in {imagenet}"
    thirds = [0, pytest.approx(100 / 3), pytest.approx(200 / 3), 100]
    assert results["accuracy"] in thirds
    assert results["top5_accuracy"] in thirds
    assert results["accuracy"] <= results["top5_accuracy"]
    steps = [event["step"] for event in of_kind(events, "metric") if event["name"] == "train_top5_accuracy"]
    assert steps == [0, 10]
    assert {"train_accuracy", "train_top5_accuracy"} <= results.keys()


def test_synthetic_images_held_back_are_tested(tmp_path: Path) -> None:
    small = {"device": "cpu", "image_size": 64, "batch_size": 2, "warmup": 0, "threads": 1, "classes": 10}
    results = results_of(run_config("resnet18", tmp_path, steps=1, test_images=4, **small))
    assert results["accuracy"] in (0, 25, 50, 75, 100)
