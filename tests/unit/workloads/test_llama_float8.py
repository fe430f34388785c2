"""Llama in FP8: torchao converts the blocks' layers alone, and emulates their products on a CPU."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.llama import FLOAT8_MULTIPLE, PRESETS, Size
from gpuagent_workloads.llama.training import LanguageModel, convert_blocks
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.llama import Config
from gpuagent_workloads.suite.llama.train import build, palm_step_flops, report_size, step_flops
from gpuagent_workloads.training.model import make_adamw
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks
from tests.unit.workloads.runs import reported, run_workloads

pytestmark = pytest.mark.slow

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
TINY = PRESETS["tiny"]
PARTS = {"queries", "keys", "values", "project", "gate", "up", "down"}
SMALL: dict[str, Any] = {"model": "tiny", "context": 16, "batch_size": 2, "device": "cpu"}


def converted_on_meta(size: Size, **options: Any) -> LanguageModel:
    with torch.device("meta"):
        model = LanguageModel(size, 16, **options)
    convert_blocks(model, emulate=True)
    return model


def names_in_float8(model: nn.Module) -> set[str]:
    return {name for name, part in model.named_modules() if type(part).__name__ == "Float8Linear"}


def losses_of(precision: str, *, compiled: bool = False, steps: int = 30, **options: Any) -> list[float]:
    """Losses of steps that learn one batch, with everything but FP8 in bfloat16."""
    model = build(Config(**SMALL, precision=precision, **options), Ranks())
    if compiled:
        model.compile_parts()
    optimizer, arithmetic = make_adamw(model, 1e-3, (0.9, 0.95), 0.1), Precision("bf16", CPU)
    tokens_BL = torch.randint(0, 256, (2, 17), generator=torch.Generator().manual_seed(5))
    losses = []
    for _ in range(steps):
        with arithmetic.autocast():
            loss = model(tokens_BL[:, :-1], tokens_BL[:, 1:])
        arithmetic.update(loss, optimizer)
        losses.append(loss.item())
    return losses


# The output of 60m is a layer of its own, that of tiny is the embedding.
@pytest.mark.parametrize("name", ["tiny", "60m"])
def test_all_layers_of_the_blocks_are_in_fp8_and_no_other(name: str) -> None:
    size = PRESETS[name]
    model = converted_on_meta(size)
    assert names_in_float8(model) == {f"llama.blocks.{block}.{part}" for block in range(size.layers) for part in PARTS}
    with torch.device("meta"):
        plain = LanguageModel(size, 16)
    assert list(dict(model.named_parameters())) == list(dict(plain.named_parameters()))


def test_frozen_layers_are_in_fp8_and_the_adapters_beside_them_are_not() -> None:
    model = converted_on_meta(TINY, lora=16)
    assert names_in_float8(model) == {f"llama.blocks.{block}.{part}.layer" for block in range(2) for part in PARTS}


def test_all_sizes_have_sides_that_fp8_can_multiply() -> None:
    for size in PRESETS.values():
        assert not any(
            side % FLOAT8_MULTIPLE for side in (size.width, size.hidden, size.width // size.heads * size.kv_heads)
        )


@pytest.mark.parametrize(("precision", "converted"), [("fp8", 14), ("bf16", None)])
def test_the_number_of_converted_layers_is_reported(precision: str, converted: int | None) -> None:
    config, reporter = Config(**SMALL, precision=precision), Reporter(None)
    report_size(build(config, Ranks()), config, reporter)
    assert reported(reporter).get("float8_layers") == converted


@pytest.mark.parametrize("options", [{}, {"lora": 4}])
def test_losses_fall_as_in_bf16_within_two_percent(options: dict[str, Any]) -> None:
    wide, narrow = losses_of("bf16", **options), losses_of("fp8", **options)
    assert narrow == pytest.approx(wide, rel=0.02)
    # Rounded they were.
    assert narrow != wide
    assert narrow[-1] < narrow[0] - (0.1 if options else 1)


def test_activations_that_are_computed_again_give_equal_losses() -> None:
    assert losses_of("fp8", recompute=True, steps=3) == losses_of("fp8", steps=3)


@pytest.mark.filterwarnings("ignore")  # of torch's compiler about itself
def test_compiled_blocks_have_the_losses_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # Traced as for any device. To compile C++ from that takes a minute, and is torch's own.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compiled = losses_of("fp8", compiled=True, recompute=True, steps=3)
    assert compiled == pytest.approx(losses_of("fp8", steps=3), rel=1e-6)


def test_flops_in_fp8_are_those_of_the_converted_layers_by_hand() -> None:
    tokens, block = 2 * 16, 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176
    config, wide = Config(**SMALL, precision="fp8"), Config(**SMALL, precision="bf16")
    # A product forward and two backward; a multiplication and an addition each.
    for of_step in (step_flops, palm_step_flops):
        assert of_step(config).float8 == 3 * 2 * tokens * 2 * block
        assert of_step(config).total == of_step(wide).total
        assert of_step(wide).float8 == 0
    # Frozen weights have no gradients, nor has the input of the first three.
    frozen = step_flops(Config(**SMALL, precision="fp8", lora=4))
    assert frozen.float8 == 2 * tokens * (2 * 2 * block - (64 * 64 + 2 * 64 * 32))
    assert frozen.total == step_flops(Config(**SMALL, precision="bf16", lora=4)).total


def test_fp8_on_a_cpu_is_misuse_in_one_line(tmp_path: Path) -> None:
    arguments = ("--model=tiny", "--context=16", "--device=cpu", "--precision=fp8", "--steps=1")
    done = run_workloads("run", "llama", *arguments, GPUAGENT_RUN_DIR=str(tmp_path))
    assert done.returncode == 2
    assert "error: --precision fp8" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("gpu", "capability", "remedy"),
    [("NVIDIA A100-SXM4-80GB", (8, 0), "use bf16"), ("Tesla T4", (7, 5), "use default or fp32")],
)
def test_an_older_gpu_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, gpu: str, capability: tuple[int, int], remedy: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: gpu)
    major, minor = capability
    with pytest.raises(MisuseError) as refused:
        Precision("fp8", CUDA)
    assert str(refused.value) == f"--precision fp8 needs compute capability 8.9; {gpu} has {major}.{minor}: {remedy}"


def test_a_missing_torchao_is_misuse_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.float8", None)
    with pytest.raises(MisuseError, match=r"torchao .*: pip install torchao"):
        build(Config(**SMALL, precision="fp8"), Ranks())
