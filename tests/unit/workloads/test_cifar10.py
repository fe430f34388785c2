from pathlib import Path

import numpy as np
import pytest

from gpuagent_workloads.data.cifar import IMAGE_BYTES
from gpuagent_workloads.data.images import make_images
from gpuagent_workloads.suite.cifar10 import train
from gpuagent_workloads.suite.cifar10.train import build_network
from gpuagent_workloads.training.model import StepFlops, count_network_flops
from tests.unit.workloads.runs import convolution_by_hand, phases_of, results_of, run_config


def test_it_learns_to_tell_synthetic_images_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "SYNTHETIC_TRAIN", 1_000)
    monkeypatch.setattr(train, "SYNTHETIC_TEST", 300)
    events = run_config("cifar10", tmp_path, device="cpu", steps=500, warmup=1, threads=1, channels_last=True)
    results = results_of(events)
    assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
    assert results["parameters"] == 62_006
    assert results["accuracy"] > 50
    assert "synthetic" in results["data_source"]
    assert results["data_wait_share"] > 0
    # Weights and momentum, read and written; four images and their labels.
    assert results["minimum_bytes_per_step"] == 2 * 2 * 4 * 62_006 + 4 * (IMAGE_BYTES + 8)
    assert "mfu" not in results


def test_it_trains_on_cifar10s_files(tmp_path: Path) -> None:
    planes = np.random.default_rng(1).integers(0, 256, (20, 1 + IMAGE_BYTES), dtype=np.uint8)
    planes[:, 0] %= 10
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(planes.tobytes())
    small = {"device": "cpu", "epochs": 2, "warmup": 1, "threads": 1}
    results = results_of(run_config("cifar10", tmp_path, data=str(tmp_path), precision="bf16", **small))
    # Five batches of four make an epoch of 20.
    assert results["steps"] == 10
    assert results["data_source"] == f"CIFAR-10 in {tmp_path}"


def test_the_network_is_that_of_the_tutorial() -> None:
    shapes = [tuple(weights.shape) for weights in build_network().parameters() if weights.ndim > 1]
    assert shapes == [(6, 3, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]


def test_model_flops_are_those_counted_by_hand() -> None:
    first, second = convolution_by_hand(28, 3, 6, 5), convolution_by_hand(10, 6, 16, 5)
    linear_layers = 400 * 120 + 120 * 84 + 84 * 10
    # Four images, a multiplication and an addition each. Forward, gradients of the weights, gradients of the input; the
    # images need none.
    expected = StepFlops(convolutions=4 * 2 * (2 * first + 3 * second), products=4 * 2 * 3 * linear_layers)
    assert count_network_flops(build_network, 4, 3, 32, 32) == expected


@pytest.mark.parametrize(("side", "classes"), [(32, 10), (50, 3)])
def test_synthetic_images_depend_on_the_seed_alone(side: int, classes: int) -> None:
    made, same, other = (make_images(40, classes, side, np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert made.images.shape == (40, side, side, 3)
    assert set(made.labels.tolist()) <= set(range(classes))
    assert np.array_equal(made.images, same.images)
    assert np.array_equal(made.labels, same.labels)
    assert not np.array_equal(made.images, other.images)
