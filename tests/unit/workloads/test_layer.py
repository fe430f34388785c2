from pathlib import Path

import pytest
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.suite.layer import LAYERS as NAMES
from gpuagent_workloads.suite.layer import Config
from gpuagent_workloads.suite.layer.measure import build_layer, last_cache_bytes, step_flops, step_minimum_bytes
from tests.unit.workloads.runs import Event, of_kind, phases_of, results_of, run_config

CPU = torch.device("cpu")

# In the shapes of S2.
LAYERS = {name: build_layer(Config(layer=name)) for name in NAMES}


def run_tiny(folder: Path, **values: object) -> list[Event]:
    return run_config("layer", folder, **{"device": "cpu", "batch_size": 1, "steps": 2, "warmup": 1, **values})


@pytest.mark.parametrize("layer", NAMES)
def test_each_layer_runs_and_reports_its_figures(layer: str, tmp_path: Path) -> None:
    events = run_tiny(tmp_path, layer=layer)
    results = results_of(events)
    assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
    measured = [event for event in of_kind(events, "step") if event["phase"] == "measure"]
    assert [event["step"] for event in measured] == [0, 1]
    seconds = sum(event["wall_seconds"] for event in measured)
    assert results["throughput"] == pytest.approx(2 / seconds)
    for figure in ("model_flops", "minimum_bytes"):
        assert results[f"{figure}_per_second"] == pytest.approx(2 * results[f"{figure}_per_step"] / seconds)
    assert results["measure_short"] == 1
    assert results["cache"].startswith("flushed")
    assert not {"peak_memory_allocated", "tf32_matmul"} & results.keys()


def test_warm_up_steps_may_be_none(tmp_path: Path) -> None:
    events = run_tiny(tmp_path, warmup=0, layer="relu")
    assert [event["phase"] for event in of_kind(events, "step")] == ["measure", "measure"]


def test_halved_values_halve_the_least_bytes(tmp_path: Path) -> None:
    half = results_of(run_tiny(tmp_path, layer="maxpool", precision="bf16"))
    assert half["tensor_type"] == "bfloat16"
    assert half["minimum_bytes_per_step"] == step_minimum_bytes(LAYERS["maxpool"], 1, 2)


def test_a_precision_that_a_cpu_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="fp16 needs a GPU"):
        run_tiny(tmp_path, precision="fp16")


def test_forward_flops_are_those_counted_by_hand() -> None:
    assert {name: step_flops(layer, 256) for name, layer in LAYERS.items()} == {
        # One comparison for each value.
        "relu": 256 * 3 * 224 * 224,
        # The largest of four takes three.
        "maxpool": 256 * 3 * 112 * 112 * 3,
        "conv": 2 * 256 * 224 * 224 * 128 * (3 * 3 * 3),
        "linear": 2 * 256 * 25088 * 4096,
    }


def test_least_bytes_are_those_counted_by_hand() -> None:
    image, pooled, filtered = 3 * 224 * 224, 3 * 112 * 112, 128 * 224 * 224
    conv_weights, linear_weights = 128 * 27 + 128, 25088 * 4096 + 4096
    assert {name: step_minimum_bytes(layer, 2, 4) for name, layer in LAYERS.items()} == {
        "relu": 4 * 2 * (image + image),
        "maxpool": 4 * 2 * (image + pooled),
        "conv": 4 * (2 * (image + filtered) + conv_weights),
        "linear": 4 * (2 * (25088 + 4096) + linear_weights),
    }


@pytest.mark.parametrize(
    "config",
    [
        *(Config(layer=name) for name in NAMES),
        Config(layer="conv", inputs=5, outputs=7, side=30, kernel=4, padding=3, stride=2),
        Config(layer="maxpool", inputs=5, side=31, kernel=3, padding=1, stride=2),
        Config(layer="linear", inputs=5, outputs=7),
    ],
)
def test_shapes_and_weights_are_those_of_the_module(config: Config) -> None:
    layer = build_layer(config)
    with torch.device("meta"):
        module = layer.build()
        assert module(torch.empty(2, *layer.input_shape)).shape == (2, *layer.output_shape)
    assert layer.weights == sum(weights.numel() for weights in module.parameters())


def test_a_given_shape_is_reported_with_what_it_makes_of_the_input(tmp_path: Path) -> None:
    results = results_of(run_tiny(tmp_path, layer="conv", inputs=2, outputs=4, side=8, kernel=5, padding=1))
    shape = "Conv2d(2, 4, kernel_size=(5, 5), stride=(1, 1), padding=(1, 1)): (1, 2, 8, 8) to (1, 4, 6, 6)"
    assert results["layer_shape"] == f"{shape}, 204 parameters"
    assert results["model_flops_per_step"] == 2 * 4 * 6 * 6 * 2 * 25


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"layer": "relu", "kernel": 3}, "--kernel has no meaning for --layer relu"),
        ({"layer": "linear", "side": 3}, "--side has no meaning"),
        ({"layer": "conv", "side": 2, "kernel": 9}, "larger than the sample"),
        ({"layer": "maxpool", "padding": 2}, "more than half"),
    ],
)
def test_shapes_that_make_no_sense_are_misuse(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(MisuseError, match=complaint):
        Config(**values)  # type: ignore[arg-type]


def test_the_largest_cache_counts_and_none_is_none(tmp_path: Path) -> None:
    assert last_cache_bytes(CPU, tmp_path) is None
    for index, size in enumerate(["32K", "1024K", "32768K", "nonsense"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert last_cache_bytes(CPU, tmp_path) == 32 << 20
