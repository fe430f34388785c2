from pathlib import Path

import numpy as np
import pytest
import torch

from gpuagent_workloads.suite.mnist import data
from gpuagent_workloads.suite.mnist.data import TEST_FILES, TRAIN_FILES, make_digits, read_digits
from gpuagent_workloads.suite.mnist.train import build_network
from tests.unit.workloads.runs import (
    Event,
    of_kind,
    phases_of,
    refusal,
    results_of,
    run_config,
    run_reporting,
    write_mnist,
)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with MNIST's four files, holding 200 synthetic digits."""
    directory = tmp_path_factory.mktemp("mnist")
    write_mnist(directory, *make_digits(200, np.random.default_rng(1)))
    return directory


def losses_of(events: list[Event]) -> list[float]:
    return [event["value"] for event in of_kind(events, "metric")]


def check_phases_and_steps(events: list[Event], warmup: int, steps: int) -> None:
    assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
    numbered = [(event["phase"], event["step"]) for event in of_kind(events, "step")]
    assert numbered == [*(("warmup", n) for n in range(warmup)), *(("measure", n) for n in range(steps))]
    assert all(event["items"] == 64 and event["wall_seconds"] > 0 for event in of_kind(events, "step"))


def test_it_trains_on_synthetic_digits_and_reports_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "SYNTHETIC_TRAIN", 2_600)
    monkeypatch.setattr(data, "SYNTHETIC_TEST", 300)
    arguments = ("--device", "cpu", "--threads", "1", "--warmup", "2", "--param", "steps=40")
    events = run_reporting(tmp_path, "mnist", *arguments)
    check_phases_and_steps(events, warmup=2, steps=40)
    results = results_of(events)
    assert results["parameters"] == 1_199_882
    assert results["accuracy"] > 25
    assert "synthetic" in results["data_source"]
    assert results["step_timing"] == "synchronised"
    assert results["torch_version"] == torch.__version__
    assert {"throughput", "time_to_first_step", "loss", "threads", "precision", "autocast"} <= results.keys()
    assert (results["seed"], results["device"]) == (1, "cpu")
    # What a CPU does not have is absent.
    assert not {"peak_memory_allocated", "tf32_matmul"} & results.keys()
    assert not any("gpu_seconds" in event for event in of_kind(events, "step"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["default", "fp32", "tf32", "fp16", "bf16"])
def test_it_trains_on_a_gpu(tmp_path: Path, precision: str) -> None:
    arguments = ("--device", "cuda", "--warmup", "2", "--steps", "200", "--precision", precision)
    events = run_reporting(tmp_path, "mnist", *arguments)
    check_phases_and_steps(events, warmup=2, steps=200)
    results = results_of(events)
    assert results["step_timing"] == "enqueue"
    assert all(event["gpu_seconds"] > 0 for event in of_kind(events, "step"))
    assert [event["uuid"][:4] for event in of_kind(events, "device")] == ["GPU-"]
    assert results["accuracy"] > 50
    assert results["peak_memory_reserved"] >= results["peak_memory_allocated"] > 4 * results["parameters"]
    expected_flags = {"fp32": (0, 0), "tf32": (1, 1)}.get(precision, (0, 1))
    assert (results["tf32_matmul"], results["tf32_cudnn"]) == expected_flags


def test_the_same_seed_gives_the_same_losses_on_a_cpu_and_another_seed_others(digits: Path, tmp_path: Path) -> None:
    def losses(name: str, seed: int) -> list[float]:
        (tmp_path / name).mkdir()
        small = {"data": str(digits), "steps": 3, "warmup": 1, "batch_size": 20, "threads": 1}
        return losses_of(run_config("mnist", tmp_path / name, device="cpu", seed=seed, **small))

    first = losses("first", 1)
    assert first == losses("again", 1)
    assert first != losses("other", 2)


def test_it_trains_on_idx_files_in_mixed_precision(digits: Path, tmp_path: Path) -> None:
    small = {"device": "cpu", "epochs": 1, "warmup": 1, "batch_size": 40}
    events = run_config("mnist", tmp_path, data=str(digits), precision="bf16", **small)
    assert len(losses_of(events)) == 2
    results = results_of(events)
    assert results["data_source"] == f"IDX files in {digits}"
    assert results["autocast"] == "bfloat16"
    # Five batches of 40 make an epoch of 200.
    assert results["steps"] == 5


def test_the_network_is_that_of_the_example() -> None:
    shapes = [tuple(weights.shape) for weights in build_network().parameters()]
    assert shapes == [(32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 9216), (128,), (10, 128), (10,)]


def test_synthetic_digits_depend_on_the_seed_alone_and_all_ten_occur() -> None:
    (images, labels), (same_images, same_labels), (other_images, _) = (
        make_digits(500, np.random.default_rng(seed)) for seed in (7, 7, 8)
    )
    assert (images.shape, labels.shape) == ((500, 28, 28), (500,))
    assert np.array_equal(images, same_images)
    assert np.array_equal(labels, same_labels)
    assert not np.array_equal(images, other_images)
    assert set(labels.tolist()) == set(range(10))


def test_files_are_read_gzipped_or_not(digits: Path) -> None:
    images, labels = make_digits(200, np.random.default_rng(1))
    for files in (TRAIN_FILES, TEST_FILES):
        read = read_digits(digits, files)
        assert np.array_equal(read.images, images)
        assert np.array_equal(read.labels, labels)


def test_labels_and_images_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    images, labels = make_digits(5, np.random.default_rng(1))
    for refused_images, refused_labels, complaint in (
        (images, labels[:4], "4 labels for the 5 images"),
        (images, np.array([0, 1, 2, 3, 10], dtype=np.uint8), "a label 10"),
        (np.zeros((2, 27, 28), dtype=np.uint8), np.zeros(2, dtype=np.uint8), "in items of shape (28, 28)"),
    ):
        write_mnist(tmp_path, refused_images, refused_labels)
        assert complaint in refusal(read_digits, tmp_path, TRAIN_FILES)
