"""The Llama model in training: what is computed again, in chunks or beside adapters is the same."""

from pathlib import Path
from typing import Any

import pytest
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.llama import PRESETS
from gpuagent_workloads.llama.training import LanguageModel, materialise
from gpuagent_workloads.suite.llama import Config
from gpuagent_workloads.suite.llama.train import build, palm_step_flops, step_flops
from gpuagent_workloads.training.model import make_adamw
from gpuagent_workloads.training.ranks import Ranks
from tests.unit.workloads.runs import of_kind, results_of, run_config

CPU = torch.device("cpu")
TINY = PRESETS["tiny"]
SMALL: dict[str, Any] = {"model": "tiny", "context": 16, "batch_size": 2, "device": "cpu", "threads": 1, "warmup": 1}


def make_model(**options: Any) -> LanguageModel:
    with torch.device("meta"):
        model = LanguageModel(TINY, 16, **options)
    materialise(model, CPU, seed=1)
    return model


def gradients_of(model: LanguageModel) -> dict[str, torch.Tensor]:
    tokens_BL = torch.arange(34).reshape(2, 17) * 7 % TINY.vocabulary
    model(tokens_BL[:, :-1], tokens_BL[:, 1:]).backward()
    return {name: weights.grad for name, weights in model.named_parameters() if weights.grad is not None}


# Of 32 tokens, so that the last chunk is shorter.
@pytest.mark.parametrize("options", [{"recompute": True}, {"chunk": 12}, {"recompute": True, "chunk": 32}])
def test_what_is_computed_again_or_in_chunks_gives_equal_gradients(options: dict[str, Any]) -> None:
    whole, other = gradients_of(make_model()), gradients_of(make_model(**options))
    assert whole.keys() == other.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(other[name], gradient)


def test_recomputation_keeps_fewer_bytes_for_the_backward_pass() -> None:
    def kept_bytes(model: LanguageModel) -> int:
        sizes: list[int] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        tokens_BL = torch.zeros(2, 16, dtype=torch.long)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(tokens_BL, tokens_BL)
        return sum(sizes)

    assert kept_bytes(make_model(recompute=True)) < kept_bytes(make_model()) / 2


def test_adapters_begin_without_effect_and_alone_learn() -> None:
    config = Config(**SMALL, lora=4)
    adapted, plain = build(config, Ranks()), build(Config(**SMALL), Ranks())
    names = [name for name, weights in adapted.named_parameters() if weights.requires_grad]
    assert len(names) == 2 * 7 * TINY.layers
    before = {name: weights.detach().clone() for name, weights in adapted.named_parameters()}
    optimizer = make_adamw(adapted, 1e-3, (0.9, 0.95), 0.0)
    # The second step also changes the first of the two layers, whose gradient is zero before.
    for _ in range(2):
        optimizer.zero_grad()
        gradients_of(adapted)
        optimizer.step()
    changed = {name for name, weights in adapted.named_parameters() if not torch.equal(weights, before[name])}
    assert changed == set(names)
    adapted.load_state_dict(before)
    frozen = {name.replace(".layer.", "."): weights for name, weights in before.items() if name not in names}
    plain.load_state_dict(frozen)
    tokens_BL = torch.arange(32).reshape(2, 16)
    torch.testing.assert_close(adapted(tokens_BL, tokens_BL), plain(tokens_BL, tokens_BL))


def test_frozen_weights_have_the_type_of_autocast_and_adapters_float32() -> None:
    model = build(Config(**SMALL, lora=4, precision="bf16"), Ranks())
    types = {weights.requires_grad: weights.dtype for weights in model.parameters()}
    assert types == {True: torch.float32, False: torch.bfloat16}


def test_it_learns_and_reports_both_kinds_of_flops(tmp_path: Path) -> None:
    events = run_config("llama", tmp_path, **{**SMALL, "context": 64, "batch_size": 8}, steps=61)
    results = results_of(events)
    config = Config(**{**SMALL, "context": 64, "batch_size": 8})
    assert results["model_flops_per_step"] == step_flops(config).total
    assert results["palm_flops_per_step"] == palm_step_flops(config).total
    assert results["parameters"] == 108_864
    assert results["model"] == "tiny"
    assert {event["items"] for event in of_kind(events, "step")} == {8 * 64}
    losses = [event["value"] for event in of_kind(events, "metric") if event["name"] == "loss"]
    assert losses[-1] < losses[0] - 0.1


def test_adapters_have_no_flops_by_palms_formula(tmp_path: Path) -> None:
    results = results_of(run_config("llama", tmp_path, **SMALL, steps=1, lora=4))
    assert "palm_flops_per_step" not in results
    # Two layers beside each of seven in a block: of queries, keys, values, projection, gate, up and down.
    sides = ((64, 64), (64, 32), (64, 32), (64, 64), (64, 176), (64, 176), (176, 64))
    assert results["parameters"] == 2 * sum(4 * (inputs + outputs) for inputs, outputs in sides)
    assert results["frozen_parameters"] == 108_864


def test_flops_are_those_by_hand() -> None:
    config = Config(**SMALL)
    tokens, block = 2 * 16, 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 176
    attention = 2 * 16 * 64
    # A multiplication and an addition each; forward, and the gradients of both factors.
    assert step_flops(config).total == 3 * 2 * tokens * (2 * (block + attention) + 64 * 256)
    # 6 N + 12 L H Q T; norms are in N: two of each block and the last.
    parameters = 2 * block + 64 * 256 + (2 * 2 + 1) * 64
    assert palm_step_flops(config).total == tokens * (6 * parameters + 12 * 2 * 64 * 16)


def test_an_embedding_that_is_only_looked_up_does_not_count() -> None:
    config = Config(**{**SMALL, "model": "60m"})
    size = PRESETS["60m"]
    per_token = palm_step_flops(config).total / config.items_per_step
    assert per_token == 6 * (58_073_600 - size.vocabulary * size.width) + 12 * size.layers * size.width * 16


def test_a_long_sequence_trains(tmp_path: Path) -> None:
    long = {"context": 8192, "batch_size": 1, "recompute": True, "loss_chunk": 1024, "warmup": 0}
    events = run_config("llama", tmp_path, **{**SMALL, **long}, steps=1)
    assert 5 < results_of(events)["loss"] < 6


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"ranks": 3, "strategy": "tp"}, "tp needs ranks that divide the 4 heads of tiny; 3 ranks do not"),
        ({"ranks": 4, "strategy": "tp"}, "divide the 2 heads of keys and values of tiny; 4 ranks do not"),
        ({"ranks": 2, "strategy": "tp", "context": 15}, "divide --context 15; 2 ranks do not"),
        ({"ranks": 2, "strategy": "tp", "lora": 4}, "tp divides no adapters: omit --lora"),
        ({"ranks": 2, "strategy": "tp", "compile": True}, "tp cannot be compiled: omit --compile"),
        ({"ranks": 2, "strategy": "tp", "precision": "fp8"}, "tp divides no layers in FP8: use --precision bf16"),
        ({"context": 15, "precision": "fp8"}, "multiple of 16 tokens a step, not --batch-size 2 × --context 15"),
        ({"strategy": "fsdp2"}, "give --ranks 2 or more, or omit it"),
        ({"ranks": 2, "strategy": "fsdp2", "precision": "fp16"}, "use --precision bf16"),
        ({"strategy": "fsdp2", "elastic": "1:1", "steps": 1}, "--strategy fsdp2 must be ddp"),
        ({"context": 131_073}, "--context must be at least 2 and at most 131072"),
    ],
)
def test_what_a_strategy_cannot_divide_is_misuse(parameters: dict[str, Any], complaint: str) -> None:
    with pytest.raises(MisuseError, match=complaint):
        Config(**{**SMALL, **parameters})
