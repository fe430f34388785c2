from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.suite.classification.networks import Vit, alexnet, resnet18, resnet50, vgg16
from gpuagent_workloads.training.model import StepFlops, count_network_flops
from tests.unit.workloads.runs import Event, of_kind, phases_of, refusal, results_of, run_config, run_reporting
from tests.unit.workloads.runs import convolution_by_hand as convolution

pytestmark = pytest.mark.slow

BUILDERS: dict[str, Callable[[int], nn.Module]] = {
    build.__name__: build for build in (resnet18, resnet50, alexnet, vgg16)
} | {"vit": lambda classes: Vit(classes, 224)}


def train_small(name: str, folder: Path, **parameters: Any) -> list[Event]:
    small = {"device": "cpu", "image_size": 64, "batch_size": 2, "warmup": 0, "threads": 1, "classes": 10}
    return run_config(name, folder, **{**small, **parameters})


@pytest.fixture(scope="module")
def tiny_imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of tiny-imagenet-200 with three classes of four images."""
    directory = tmp_path_factory.mktemp("tiny-imagenet-200")
    for number, name in enumerate(("n01443537", "n01629819", "n01641577")):
        folder = directory / "train" / name / "images"
        folder.mkdir(parents=True)
        (folder.parent / f"{name}_boxes.txt").write_text("not read")
        # Some of the original images are grey.
        Image.new("L", (64, 64), number * 80).save(folder / f"{name}_0.JPEG")
        for image in range(1, 4):
            Image.new("RGB", (64, 64), (number * 80, 0, 0)).save(folder / f"{name}_{image}.JPEG")
    return directory


def test_it_trains_for_the_batches_that_were_asked_for_and_its_loss_falls(tmp_path: Path) -> None:
    small = ("--image-size", "64", "--batch-size", "8", "--classes", "4", "--warmup", "1", "--threads", "1")
    events = run_reporting(tmp_path, "resnet18", "--steps", "21", "--device", "cpu", *small)
    results = results_of(events)
    assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
    assert [event["phase"] for event in of_kind(events, "step")] == ["warmup"] + 21 * ["measure"]
    assert (results["steps"], results["parameters"]) == (21, 11_178_564)
    assert "on the device" in results["data_source"]
    assert "accuracy" not in results
    assert {"loss", "throughput", "model_flops_per_step", "minimum_bytes_per_step", "data_wait_share"} <= results.keys()
    losses = [event["value"] for event in of_kind(events, "metric") if event["name"] == "loss"]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("name", "parameters", "autocast"),
    [
        *(
            (name, {"steps": 1, "channels_last": True, "precision": "bf16"}, "bfloat16")
            for name in ("resnet50", "alexnet")
        ),
        ("vgg16", {"steps": 1, "order": "swapped"}, "none"),
        ("vit", {"steps": 1}, "none"),
    ],
)
def test_other_networks_train(
    name: str, parameters: dict[str, Any], autocast: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To draw a hundred million weights takes longer than to train them once.
    for draw in ("kaiming_normal_", "kaiming_uniform_", "normal_", "trunc_normal_", "uniform_", "xavier_uniform_"):
        monkeypatch.setattr(nn.init, draw, lambda weights, *_, **__: nn.init.constant_(weights, 0.01))
    results = results_of(train_small(name, tmp_path, **parameters))
    assert (results["steps"], results["autocast"]) == (1, autocast)


@pytest.mark.parametrize(
    ("name", "with_1000", "with_200"),
    [
        ("resnet18", 11_689_512, 11_279_112),
        ("resnet50", 25_557_032, 23_917_832),
        ("alexnet", 61_100_840, 57_823_240),
        ("vgg16", 138_357_544, 135_079_944),
        ("vit", 86_567_656, 85_952_456),
    ],
)
def test_networks_have_the_parameters_of_their_papers_implementations(name: str, with_1000: int, with_200: int) -> None:
    with torch.device("meta"):
        models = BUILDERS[name](1000), BUILDERS[name](200)
    counted = [sum(weights.numel() for weights in model.parameters()) for model in models]
    assert counted == [with_1000, with_200]


def basic_stage(side: int, channels: int) -> int:
    halving = convolution(side, channels // 2, channels) + convolution(side, channels // 2, channels, 1)
    return halving + 3 * convolution(side, channels, channels)


def bottleneck_stage(side: int, channels_in: int, channels: int, blocks: int, side_in: int) -> int:
    wide = 4 * channels
    first = convolution(side_in, channels_in, channels, 1) + convolution(side, channels, channels)
    first += convolution(side, channels, wide, 1) + convolution(side, channels_in, wide, 1)
    other = 2 * convolution(side, wide, channels, 1) + convolution(side, channels, channels)
    return first + (blocks - 1) * other


RESNET_STEM = convolution(112, 3, 64, 7)

# By network: multiplications of the first convolution, of all others, and of the linear layers, for 1000 classes.
BY_HAND = {
    "resnet18": (
        RESNET_STEM,
        4 * convolution(56, 64, 64) + basic_stage(28, 128) + basic_stage(14, 256) + basic_stage(7, 512),
        512 * 1000,
    ),
    "resnet50": (
        RESNET_STEM,
        bottleneck_stage(56, 64, 64, 3, side_in=56)
        + bottleneck_stage(28, 256, 128, 4, side_in=56)
        + bottleneck_stage(14, 512, 256, 6, side_in=28)
        + bottleneck_stage(7, 1024, 512, 3, side_in=14),
        2048 * 1000,
    ),
    "alexnet": (
        convolution(55, 3, 64, 11),
        convolution(27, 64, 192, 5) + convolution(13, 192, 384) + convolution(13, 384, 256) + convolution(13, 256, 256),
        9216 * 4096 + 4096 * 4096 + 4096 * 1000,
    ),
    "vgg16": (
        convolution(224, 3, 64),
        convolution(224, 64, 64)
        + convolution(112, 64, 128)
        + convolution(112, 128, 128)
        + convolution(56, 128, 256)
        + 2 * convolution(56, 256, 256)
        + convolution(28, 256, 512)
        + 2 * convolution(28, 512, 512)
        + 3 * convolution(14, 512, 512),
        25088 * 4096 + 4096 * 4096 + 4096 * 1000,
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_model_flops_are_those_counted_by_hand(name: str) -> None:
    first, others, linear = BY_HAND[name]
    # Forward, gradients of the weights, gradients of the input; the images need none.
    expected = StepFlops(convolutions=2 * (2 * first + 3 * others), products=2 * 3 * linear)
    assert count_network_flops(lambda: BUILDERS[name](1000), 1, 3, 224, 224) == expected


def test_swapping_relu_and_pooling_changes_no_output() -> None:
    with torch.device("meta"):
        # Without the linear layers behind, which have most of the weights.
        normal, swapped = (vgg16(10, swapped=order).get_submodule("features") for order in (False, True))
    normal.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(1)
    for weights in normal.parameters():
        nn.init.normal_(weights, std=0.05, generator=generator)
    swapped.load_state_dict(normal.state_dict(), assign=True)
    images = torch.randn(2, 3, 64, 64, generator=generator)
    with torch.inference_mode():
        seen = normal(images)
        assert seen.any()
        assert torch.equal(seen, swapped(images))


def test_swapped_pooling_comes_before_relu() -> None:
    with torch.device("meta"):
        layers = [type(layer) for layer in vgg16(10, swapped=True).get_submodule("features").children()]
    pooling = [position for position, layer in enumerate(layers) if layer is nn.MaxPool2d]
    assert len(pooling) == 5
    assert all((layers[p - 1], layers[p + 1]) == (nn.Conv2d, nn.ReLU) for p in pooling)


@pytest.mark.parametrize("name", BUILDERS)
def test_networks_compute_what_torchvisions_do(name: str) -> None:
    models = pytest.importorskip("torchvision.models", reason="compares with torchvision")
    theirs, ours = getattr(models, name)(num_classes=10), BUILDERS[name](10)
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))


def test_it_trains_on_image_files_with_workers(tiny_imagenet: Path, tmp_path: Path) -> None:
    small = {"data": str(tiny_imagenet), "classes": 3, "batch_size": 6, "epochs": 2}
    results = results_of(train_small("resnet18", tmp_path, workers=1, **small))
    assert results["data_source"] == f"12 image files of 3 classes in {tiny_imagenet}"
    assert results["steps"] == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_cannot_be_decoded_fails_the_run_and_is_named(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "train" / "n01443537" / "images"
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "whole.JPEG")
    damaged = folder / "cut.JPEG"
    damaged.write_bytes((folder / "whole.JPEG").read_bytes()[:500])
    refused = refusal(lambda: train_small("resnet18", tmp_path, data=str(tmp_path), steps=1, workers=workers))
    assert refused.startswith(f"cannot read {damaged} as an image")


def test_more_classes_than_the_network_tells_apart_are_misuse(tiny_imagenet: Path, tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="less than the 3 classes"):
        train_small("resnet18", tmp_path, data=str(tiny_imagenet), classes=2)
