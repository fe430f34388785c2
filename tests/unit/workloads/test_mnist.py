import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import DataError
from gpuagent_workloads.registry import find
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.mnist import Config, data
from gpuagent_workloads.suite.mnist.data import TEST_FILES, TRAIN_FILES, read_digits
from gpuagent_workloads.suite.mnist.synthetic import make_digits
from gpuagent_workloads.suite.mnist.train import build_network, loss_on_meta_device
from gpuagent_workloads.training.model import count_flops
from tests.unit.workloads.runs import (
    Event,
    idx_bytes,
    of_kind,
    phases_of,
    read_events,
    results_of,
    run_workloads,
    write_mnist,
)

run = find("mnist").run


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with MNIST's four files, holding 200 synthetic digits."""
    directory = tmp_path_factory.mktemp("mnist")
    write_mnist(directory, *make_digits(200, np.random.default_rng(1)))
    return directory


def losses(config: Config, path: Path) -> list[float]:
    with Reporter(path) as reporter:
        run(config, reporter)
    return [event["value"] for event in of_kind(read_events(path), "metric")]


def check_phases_and_steps(events: list[Event], warmup: int, steps: int) -> None:
    assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
    numbered = [(event["phase"], event["step"]) for event in of_kind(events, "step")]
    assert numbered == [*(("warmup", n) for n in range(warmup)), *(("measure", n) for n in range(steps))]
    assert all(event["items"] == 64 and event["wall_seconds"] > 0 for event in of_kind(events, "step"))


def test_it_trains_on_synthetic_digits_and_reports_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "SYNTHETIC_TRAIN", 2_600)
    monkeypatch.setattr(data, "SYNTHETIC_TEST", 300)
    arguments = ("run", "mnist", "--device", "cpu", "--threads", "1", "--warmup", "2", "--param", "steps=40")
    done = run_workloads(*arguments, GPUAGENT_RUN_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    events = read_events(tmp_path / "events.0.0.jsonl")
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
    assert "accuracy" in done.stdout


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["default", "fp32", "tf32", "fp16", "bf16"])
def test_it_trains_on_a_gpu(tmp_path: Path, precision: str) -> None:
    arguments = ("run", "mnist", "--device", "cuda", "--warmup", "2", "--steps", "200", "--precision", precision)
    done = run_workloads(*arguments, GPUAGENT_RUN_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    events = read_events(tmp_path / "events.0.0.jsonl")
    check_phases_and_steps(events, warmup=2, steps=200)
    assert results_of(events)["step_timing"] == "enqueue"
    assert all(event["gpu_seconds"] > 0 for event in of_kind(events, "step"))
    assert [event["uuid"][:4] for event in of_kind(events, "device")] == ["GPU-"]
    results = results_of(events)
    assert results["accuracy"] > 50
    assert results["peak_memory_reserved"] >= results["peak_memory_allocated"] > 4 * results["parameters"]
    expected_flags = {"fp32": (0, 0), "tf32": (1, 1)}.get(precision, (0, 1))
    assert (results["tf32_matmul"], results["tf32_cudnn"]) == expected_flags


def test_the_same_seed_gives_the_same_losses_on_a_cpu_and_another_seed_others(digits: Path, tmp_path: Path) -> None:
    config = {"device": "cpu", "data": str(digits), "steps": 11, "warmup": 1, "batch_size": 20, "threads": 1}
    first = losses(Config(**config), tmp_path / "first")  # type: ignore[arg-type]
    again = losses(Config(**config), tmp_path / "again")  # type: ignore[arg-type]
    other = losses(Config(**config, seed=2), tmp_path / "other")  # type: ignore[arg-type]
    assert first == again
    assert first != other


def test_it_trains_on_idx_files_in_mixed_precision(digits: Path, tmp_path: Path) -> None:
    config = Config(device="cpu", data=str(digits), epochs=1, warmup=1, batch_size=40, precision="bf16")
    assert len(losses(config, tmp_path / "events")) == 2
    results = results_of(read_events(tmp_path / "events"))
    assert results["data_source"] == f"IDX files in {digits}"
    assert results["autocast"] == "bfloat16"
    # Five batches of 40 make an epoch of 200.
    assert results["steps"] == 5


def test_a_batch_that_is_larger_than_the_data_is_misuse(digits: Path) -> None:
    with pytest.raises(MisuseError, match="more than the 200 training samples"):
        run(Config(data=str(digits), batch_size=201), Reporter(None))


def test_the_network_is_that_of_the_example() -> None:
    shapes = [tuple(weights.shape) for weights in build_network().parameters()]
    assert shapes == [(32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 9216), (128,), (10, 128), (10,)]


def test_model_flops_are_those_counted_by_hand() -> None:
    first_convolution = 2 * 26 * 26 * 32 * (3 * 3 * 1)
    second_convolution = 2 * 24 * 24 * 64 * (3 * 3 * 32)
    linear_layers = 2 * (9216 * 128 + 128 * 10)
    # Forward, gradients of the weights, gradients of the input; the images need none.
    per_image = 2 * first_convolution + 3 * second_convolution + 3 * linear_layers
    assert count_flops(lambda: loss_on_meta_device(64)).total == 64 * per_image


def test_synthetic_digits_depend_on_the_seed_alone() -> None:
    images, labels = make_digits(50, np.random.default_rng(7))
    same_images, same_labels = make_digits(50, np.random.default_rng(7))
    other_images, _ = make_digits(50, np.random.default_rng(8))
    assert (images.shape, labels.shape) == ((50, 28, 28), (50,))
    assert np.array_equal(images, same_images)
    assert np.array_equal(labels, same_labels)
    assert not np.array_equal(images, other_images)


def test_all_ten_digits_occur() -> None:
    _, labels = make_digits(500, np.random.default_rng(1))
    assert set(labels.tolist()) == set(range(10))


def test_files_are_read_gzipped_or_not(digits: Path) -> None:
    images, labels = make_digits(200, np.random.default_rng(1))
    for files in (TRAIN_FILES, TEST_FILES):
        read = read_digits(digits, files)
        assert np.array_equal(read.images, images)
        assert np.array_equal(read.labels, labels)


def test_labels_that_do_not_fit_the_images_are_refused(tmp_path: Path) -> None:
    images, labels = make_digits(5, np.random.default_rng(1))
    write_mnist(tmp_path, images, labels[:4])
    with pytest.raises(DataError, match="4 labels for the 5 images"):
        read_digits(tmp_path, TRAIN_FILES)
    write_mnist(tmp_path, images, np.array([0, 1, 2, 3, 10], dtype=np.uint8))
    with pytest.raises(DataError, match="a label 10"):
        read_digits(tmp_path, TRAIN_FILES)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    content = idx_bytes(np.zeros((2, 27, 28), dtype=np.uint8))
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(2, dtype=np.uint8)))
    with pytest.raises(DataError, match="2 × 27 × 28 values, not N × 28 × 28"):
        read_digits(tmp_path, TRAIN_FILES)
