from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from gpuagent_workloads.suite.classification.networks import Vit, alexnet, resnet18, resnet50, vgg16
from gpuagent_workloads.training.model import StepFlops, count_network_flops
from tests.unit.workloads.runs import Event, of_kind, phases_of, refusal, results_of, run_config, run_reporting

pytestmark = pytest.mark.slow

BUILDERS: dict[str, Callable[[int], nn.Module]] = {
    build.__name__: build for build in (resnet18, resnet50, alexnet, vgg16)
} | {"vit": lambda classes: Vit(classes, 224)}


def train_small(name: str, folder: Path, **parameters: Any) -> list[Event]:
    small = {"device": "cpu", "image_size": 64, "batch_size": 2, "warmup": 0, "threads": 1, "classes": 10}
    return run_config(name, folder, **{**small, **parameters})


def test_it_trains_for_the_batches_that_were_asked_for_and_its_loss_falls(tmp_path: Path) -> None:
    small = ("--image-size", "64", "--batch-size", "8", "--classes", "4", "--warmup", "1", "--threads", "1")
    events = run_reporting(tmp_path, "resnet18", "--steps", "11", "--device", "cpu", *small)
    results = results_of(events)
    assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
    assert [event["phase"] for event in of_kind(events, "step")] == ["warmup"] + 11 * ["measure"]
    assert (results["steps"], results["parameters"]) == (11, 11_178_564)
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


# Counted by hand: forward, gradients of the weights, gradients of the input; the images need none.
@pytest.mark.parametrize(
    ("name", "convolutions", "products"),
    [
        ("resnet18", 10_645_340_160, 3_072_000),
        ("resnet50", 24_286_789_632, 12_288_000),
        ("alexnet", 3_792_845_568, 351_731_712),
        ("vgg16", 91_906_375_680, 741_801_984),
    ],
)
def test_model_flops_are_those_counted_by_hand(name: str, convolutions: int, products: int) -> None:
    counted = count_network_flops(lambda: BUILDERS[name](1000), 1, 3, 224, 224)
    assert counted == StepFlops(convolutions=convolutions, products=products)


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
