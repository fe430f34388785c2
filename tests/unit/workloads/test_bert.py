"""The workload bert: its masks, its size, and that it learns."""

from pathlib import Path

import numpy as np
import pytest
import torch

from gpuagent_workloads.suite.bert import SIZES, Config
from gpuagent_workloads.suite.bert.train import MASK, Bert, batches_of, step_flops
from gpuagent_workloads.training.progress import Progress
from gpuagent_workloads.training.session import Order
from tests.unit.workloads.runs import of_kind, results_of, run_config


# As Hugging Face's BertForMaskedLM counts those of bert-base-uncased.
def test_the_default_is_as_large_as_bert_base() -> None:
    with torch.device("meta"):
        assert sum(weights.numel() for weights in Bert(SIZES["base"]).parameters()) == 109_514_298


def test_it_learns_and_reports_tokens(tmp_path: Path) -> None:
    small = {"model": "tiny", "context": 32, "batch_size": 16, "device": "cpu", "threads": 1, "warmup": 1}
    events = run_config("bert", tmp_path, **small, steps=101)
    assert {event["items"] for event in of_kind(events, "step")} == {16 * 32}
    losses = [event["value"] for event in of_kind(events, "metric") if event["name"] == "loss"]
    assert losses[-1] < losses[0] - 0.05
    assert results_of(events)["model_flops_per_step"] == step_flops(Config(**small)).total  # type: ignore[arg-type]


def test_masked_tokens_are_its_targets_and_all_others_stay() -> None:
    config, stream = Config(model="base", context=200, batch_size=8), np.arange(1_000, 3_000, dtype=np.uint16)
    batches = batches_of(stream, config, Order(1_800, config, Progress(), drawn=True), torch.device("cpu"))
    tokens_BL, places_BM, targets_BM = next(batches)
    assert places_BM.shape == targets_BM.shape == (8, 30)
    restored_BL = tokens_BL.scatter(1, places_BM, targets_BM)
    assert torch.equal(restored_BL.diff(dim=1), torch.ones(8, 199, dtype=torch.long))
    masked = (tokens_BL.gather(1, places_BM) == MASK).double().mean().item()
    # 240 draws of 80 %: five standard deviations are 13 %.
    assert masked == pytest.approx(0.8, abs=0.13)


def test_flops_are_those_by_hand() -> None:
    config = Config(model="tiny", context=20, batch_size=2)
    layer = 20 * (4 * 64**2 + 2 * 64 * 256) + 2 * 20**2 * 64
    head = 3 * (64**2 + 64 * 256)
    assert step_flops(config).total == 3 * 2 * 2 * (2 * layer + head)
