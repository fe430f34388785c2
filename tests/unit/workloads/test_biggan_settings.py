"""BigGAN's accumulation, learning rates, saves and tests."""

from pathlib import Path

import pytest
import torch

from gpuagent_workloads.suite.biggan import Config, gan
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks
from tests.unit.workloads.runs import of_kind, results_of, run_config

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


def gradients(accumulate: int, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The gradients of a step on the same two images and the same noise, in so many batches, in float64."""
    torch.manual_seed(1)
    size = 2 // accumulate
    config = Config(ch=8, classes=3, device="cpu", batch_size=size, accumulate=accumulate, d_steps=1, lr_g=0, lr_d=0)
    networks = gan.Gan(config, CPU, Precision("default", CPU), Ranks())
    # Batch normalisation and the power method depend on the batches in training.
    networks.networks.double().eval()
    noise, labels = torch.randn(4, 120, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    images = torch.randint(256, (2, 128, 128, 3), dtype=torch.uint8)
    draws = zip(noise.split(size), labels.split(size), strict=True)
    monkeypatch.setattr(gan, "draw", lambda *_: next(draws))
    networks.step(zip(images.split(size), torch.tensor([1, 2]).split(size), strict=True))
    return [weights.grad for weights in networks.networks.parameters() if weights.grad is not None]


def test_accumulated_batches_have_the_gradient_of_one_large_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, accumulated = gradients(1, monkeypatch), gradients(2, monkeypatch)
    assert len(whole) == len(accumulated) > 100
    assert sum(gradient.abs().sum() for gradient in whole) > 0
    for one, other in zip(whole, accumulated, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_each_network_learns_at_its_own_rate() -> None:
    config = Config(ch=8, classes=3, device="cpu", lr_g=1e-4, lr_d=4e-4)
    networks = gan.Gan(config, CPU, Precision("default", CPU), Ranks())
    assert networks.generator_optimizer.param_groups[0]["lr"] == 1e-4
    assert networks.discriminator_optimizer.param_groups[0]["lr"] == 4e-4


def test_a_network_saves_and_tests_within_the_training(tmp_path: Path) -> None:
    small = {"ch": 8, "classes": 3, "batch_size": 1, "d_steps": 1, "threads": 1}
    often = {"warmup": 0, "steps": 1, "save_every": 1, "test_every": 1, "test_images": 1}
    events = run_config("biggan", tmp_path, device="cpu", **small, **often)
    results, gaps, steps = results_of(events), of_kind(events, "gap"), of_kind(events, "step")
    assert [(gap["name"], gap["step"]) for gap in gaps] == [("save", 0), ("test", 0)]
    assert (results["saves"], results["tests"]) == (1, 1)
    assert results["test_seconds"] == pytest.approx(sum(gap["seconds"] for gap in gaps if gap["name"] == "test"))
    # An interrupted step has no time of its own.
    assert ["wall_seconds" in step for step in steps] == [False]
    assert {step["items"] for step in steps} == {1}
    assert len([event for event in of_kind(events, "metric") if event["name"] == "test_score"]) == 1
    assert results["data_source"].startswith("synthetic")
    assert not list(tmp_path.glob("saved-*"))
