import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.suite.gpt import Config
from gpuagent_workloads.suite.gpt.train import Gpt, step_flops
from gpuagent_workloads.training.model import count_flops
from gpuagent_workloads.training.progress import Progress
from gpuagent_workloads.training.session import Order
from gpuagent_workloads.training.tokens import PHRASE_TOKENS, PHRASES, batches_of, make_tokens
from tests.unit.workloads.runs import of_kind, phases_of, refusal, results_of, run_config, run_reporting

SIZES: dict[str, Any] = {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocabulary": 64}
SMALL = {**SIZES, "device": "cpu", "batch_size": 4, "warmup": 1, "threads": 1}
CONFIG = Config(**SMALL)
CPU = torch.device("cpu")


def parameter_count(config: Config) -> int:
    with torch.device("meta"):
        return sum(weights.numel() for weights in Gpt(config).parameters())


def test_it_learns_a_synthetic_stream_and_reports_everything(tmp_path: Path) -> None:
    sizes = {**SIZES, "width": 64, "vocabulary": 256}
    more = ["--device", "cpu", "--threads", "1", "--batch-size", "16", "--warmup", "2", "--steps", "200"]
    events = run_reporting(tmp_path, "gpt", *(f"--{name}={value}" for name, value in sizes.items()), *more)
    assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
    # Tokens, not sequences.
    assert {event["items"] for event in of_kind(events, "step")} == {16 * 16}
    (throughput,) = (event for event in of_kind(events, "result") if event["name"] == "throughput")
    assert throughput["unit"] == "tokens/s"
    results = results_of(events)
    assert results["parameters"] == parameter_count(Config(**sizes))
    assert "synthetic" in results["data_source"]
    losses = [event["value"] for event in of_kind(events, "metric") if event["name"] == "loss"]
    assert losses[0] > 0.95 * math.log(256)
    assert max(losses[-1], results["validation_loss"]) < 0.9 * math.log(256)


def test_it_trains_on_token_files_in_mixed_precision(tmp_path: Path) -> None:
    for name, count in (("train.bin", 700), ("val.bin", 17)):
        make_tokens(count, 64, np.random.default_rng(1)).astype("<u2").tofile(tmp_path / name)
    results = results_of(run_config("gpt", tmp_path, **SMALL, epochs=1, precision="bf16", data=str(tmp_path)))
    assert results["data_source"] == f"tokens in {tmp_path}"
    assert results["autocast"] == "bfloat16"
    # 700 tokens are ten times 4 sequences of 16, and some.
    assert results["steps"] == 10


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "parameters", [{}, {"precision": "bf16"}, {"precision": "fp16"}, {"precision": "bf16", "compile": True}]
)
def test_gpt_2_s_smallest_trains_on_a_gpu(parameters: dict[str, Any], tmp_path: Path) -> None:
    results = results_of(run_config("gpt", tmp_path, device="cuda", batch_size=4, steps=50, **parameters))
    assert results["validation_loss"] < 0.9 * math.log(50_257)
    assert 0 < results.get("mfu", 1) < 100


@pytest.mark.parametrize(
    ("validation", "complaint"),
    [
        (np.zeros(16), "val.bin holds 16 tokens; with this --context it must hold 17"),
        (np.full(17, 64), "val.bin has a token 64, and the model a vocabulary of 64"),
    ],
)
def test_unfit_token_files_are_refused(validation: npt.NDArray[np.float64], complaint: str, tmp_path: Path) -> None:
    np.zeros(17, dtype="<u2").tofile(tmp_path / "train.bin")
    validation.astype("<u2").tofile(tmp_path / "val.bin")
    assert complaint in refusal(lambda: run_config("gpt", tmp_path, **SMALL, data=str(tmp_path)))


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"width": 100}, "--width 100 must be a multiple of --heads, which is 12"),
        ({"steps": 1, "epochs": 1}, "exclude each other"),
    ],
)
def test_sizes_and_limits_that_contradict_each_other_are_misuse(parameters: dict[str, int], complaint: str) -> None:
    with pytest.raises(MisuseError, match=complaint):
        Config(**parameters)  # type: ignore[arg-type]


def test_the_default_is_as_large_as_gpt_2() -> None:
    # As nanoGPT and Hugging Face's gpt2 count it.
    assert parameter_count(Config()) == 124_439_808


@pytest.mark.parametrize("sizes", [SIZES, {**SIZES, "layers": 3, "heads": 1, "width": 8, "context": 5}])
def test_the_formula_for_flops_agrees_with_the_network(sizes: dict[str, int]) -> None:
    config = Config(**sizes, batch_size=3)  # type: ignore[arg-type]
    with torch.device("meta"):
        model = Gpt(config)
        tokens = torch.empty(3, config.context, dtype=torch.long)
    assert count_flops(lambda: model(tokens, tokens)).total == step_flops(config).total


def test_no_token_sees_what_follows_it() -> None:
    model = Gpt(CONFIG).eval()
    tokens = torch.arange(16).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 9:] = 63
    hidden, other = (model.blocks(model.token_embedding(some)) for some in (tokens, changed))
    torch.testing.assert_close(hidden[:, :9], other[:, :9])
    assert not torch.allclose(hidden[:, 9:], other[:, 9:])


def test_any_window_of_the_stream_can_be_drawn_and_its_targets_are_the_tokens_that_follow() -> None:
    batches = batches_of(np.arange(18, dtype=np.uint16), 16, Order(2, CONFIG, Progress(), drawn=True), CPU)
    drawn = [next(batches) for _ in range(40)]
    assert {int(tokens[0, 0]) for tokens, _ in drawn} == {0, 1}
    assert all(tokens.shape == targets.shape == (4, 16) for tokens, targets in drawn)
    assert all(torch.equal(tokens + 1, targets) for tokens, targets in drawn)


def test_the_synthetic_stream_is_made_of_phrases_and_depends_on_the_seed_alone() -> None:
    stream, again, other = (make_tokens(5_000, 50_257, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(stream, again)
    assert not np.array_equal(stream, other)
    whole_phrases = stream[: 5_000 - 5_000 % PHRASE_TOKENS].reshape(-1, PHRASE_TOKENS)
    assert len(np.unique(whole_phrases, axis=0)) <= PHRASES
    assert stream.max() > 40_000
