from pathlib import Path

import numpy as np
import pytest

from gpuagent_workloads.data.cifar import IMAGE_BYTES
from gpuagent_workloads.data.images import make_images
from gpuagent_workloads.registry import find
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.cifar10 import Config
from gpuagent_workloads.suite.cifar10.train import build_network, loss_on_meta_device
from gpuagent_workloads.training.model import StepFlops, count_flops
from tests.unit.workloads.runs import phases_of, read_events, results_of

run = find("cifar10").run


def test_it_learns_to_tell_synthetic_images_apart(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with Reporter(path) as reporter:
        run(Config(device="cpu", steps=500, warmup=1, threads=1, channels_last=True), reporter)
    events = read_events(path)
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
    reporter = Reporter(None)
    run(Config(device="cpu", data=str(tmp_path), epochs=2, warmup=1, threads=1, precision="bf16"), reporter)
    results = {result.name: result.value for result in reporter.results}
    # Five batches of four make an epoch of 20.
    assert results["steps"] == 10
    assert results["data_source"] == f"CIFAR-10 in {tmp_path}"


def test_the_network_is_that_of_the_tutorial() -> None:
    shapes = [tuple(weights.shape) for weights in build_network().parameters() if weights.ndim > 1]
    assert shapes == [(6, 3, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]


def test_model_flops_are_those_counted_by_hand() -> None:
    first_convolution = 2 * 28 * 28 * 6 * (5 * 5 * 3)
    second_convolution = 2 * 10 * 10 * 16 * (5 * 5 * 6)
    linear_layers = 2 * (400 * 120 + 120 * 84 + 84 * 10)
    # Forward, gradients of the weights, gradients of the input; the images need none.
    per_image = StepFlops(convolutions=2 * first_convolution + 3 * second_convolution, products=3 * linear_layers)
    counted = count_flops(lambda: loss_on_meta_device(4))
    assert counted == StepFlops(convolutions=4 * per_image.convolutions, products=4 * per_image.products)


@pytest.mark.parametrize(("side", "classes"), [(32, 10), (50, 3)])
def test_synthetic_images_depend_on_the_seed_alone(side: int, classes: int) -> None:
    made = make_images(40, classes, side, np.random.default_rng(7))
    same = make_images(40, classes, side, np.random.default_rng(7))
    other = make_images(40, classes, side, np.random.default_rng(8))
    assert made.images.shape == (40, side, side, 3)
    assert set(made.labels.tolist()) <= set(range(classes))
    assert np.array_equal(made.images, same.images)
    assert np.array_equal(made.labels, same.labels)
    assert not np.array_equal(made.images, other.images)
