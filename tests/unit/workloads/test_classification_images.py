"""The images of a classification workload, and the accuracies that it reports."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.classification import ClassificationConfig
from gpuagent_workloads.suite.classification.sources import open_source
from gpuagent_workloads.training.images import train_accuracies
from gpuagent_workloads.training.progress import Progress
from gpuagent_workloads.training.session import Order
from tests.unit.workloads.runs import of_kind, results_of, run_config

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's folders, of three classes with two images each."""
    directory = tmp_path_factory.mktemp("imagenet")
    for number, name in enumerate(("n01440764", "n01443537", "n01484850")):
        folder = directory / "train" / name
        folder.mkdir(parents=True)
        for image in range(2):
            pixels = np.full((80, 100, 3), 100 + 50 * number + 20 * image, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{name}_{image}.JPEG")
    return directory


def images_of(directory: Path, batches: int, workers: int) -> torch.Tensor:
    """The first images to train on."""
    config = ClassificationConfig(data=str(directory), image_size=64, batch_size=3, workers=workers)
    source = open_source(config, Reporter(None))
    order = Order(len(source), config, Progress())
    return torch.cat([images for images, _ in islice(source.batches(order, CPU), batches)])


def test_images_come_in_the_same_order_whatever_the_number_of_workers(imagenet: Path) -> None:
    images = images_of(imagenet, 4, workers=0)
    assert len({image.numpy().tobytes() for image in images}) == 6
    assert torch.equal(images, images_of(imagenet, 4, workers=2))


def test_more_classes_than_the_network_tells_apart_are_misuse(imagenet: Path, tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="less than the 3 classes"):
        run_config("resnet18", tmp_path, device="cpu", data=str(imagenet), classes=2)


def test_accuracies_are_those_counted_by_hand() -> None:
    scores = torch.tensor([[9, 8, 7, 6, 5, 4], [1, 2, 3, 4, 5, 6], [3, 9, 1, 2, 5, 4], [6, 5, 4, 3, 2, 1]]).float()
    # First; last, and so not among five; third; fifth.
    assert read(train_accuracies(scores, torch.tensor([0, 0, 5, 4]))) == [25, 75]
    # Of two classes, both are among the best five.
    assert read(train_accuracies(scores[:, :2], torch.tensor([1, 1, 1, 1]))) == [50, 100]


def read(accuracies: dict[str, torch.Tensor]) -> list[float]:
    """The share of the highest score, and that of the five highest."""
    return [accuracies[name].item() for name in ("train_accuracy", "train_top5_accuracy")]


def test_training_reports_top_1_and_top_5(imagenet: Path, tmp_path: Path) -> None:
    small = {"device": "cpu", "image_size": 64, "batch_size": 2, "warmup": 0, "threads": 1, "classes": 10}
    events = run_config("resnet18", tmp_path, steps=11, **small, data=str(imagenet), workers=0)
    results = results_of(events)
    assert results["data_source"] == f"6 image files of 3 classes in {imagenet}"
    steps = [event["step"] for event in of_kind(events, "metric") if event["name"] == "train_top5_accuracy"]
    assert steps == [0, 10]
    assert results["train_accuracy"] <= results["train_top5_accuracy"]
