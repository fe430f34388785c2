"""The table of a network's layers, against published figures and torch's own counter."""

import json
import sys
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch.utils.flop_counter import FlopCounterMode

from gpuagent.cli import cli
from gpuagent.runs.catalogue import ask_layers
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_workloads.registry import WORKLOADS
from gpuagent_workloads.suite.classification.networks import resnet50
from tests.unit.workloads.runs import run_workloads

pytestmark = pytest.mark.slow


def rows_of(*arguments: str) -> list[dict[str, Any]]:
    done = run_workloads("summary", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def total(rows: list[dict[str, Any]], figure: str) -> int:
    return sum(row[figure] or 0 for row in rows)


@pytest.mark.parametrize(
    ("name", "parameters", "giga_multiplications"),
    [
        ("resnet18", 11_689_512, 1.814),
        ("resnet50", 25_557_032, 4.089),
        ("alexnet", 61_100_840, 0.714),
        ("vgg16", 138_357_544, 15.47),
    ],
)
def test_networks_have_the_parameters_and_operations_that_torchvision_publishes(
    name: str, parameters: int, giga_multiplications: float
) -> None:
    rows = rows_of(name, "--classes", "1000", "--batch-size", "1")
    assert total(rows, "parameters") == parameters
    assert total(rows, "flops") / 2e9 == pytest.approx(giga_multiplications, rel=5e-4)


def test_operations_are_those_of_torchs_counter_and_bytes_those_by_hand() -> None:
    rows = rows_of("resnet50", "--batch-size", "2")
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        resnet50(200)(torch.empty(2, 3, 224, 224))
    assert total(rows, "flops") == counter.get_total_flops()
    first = rows[0]
    assert (first["layer"], first["type"], first["output_shape"]) == ("conv1", "Conv2d", [2, 64, 112, 112])
    output = 2 * 64 * 112 * 112
    assert (first["parameters"], first["flops"]) == (64 * 3 * 49, 2 * output * 3 * 49)
    assert first["output_bytes"] == 4 * output
    assert first["moved_bytes"] == 4 * (2 * 3 * 224 * 224 + 64 * 3 * 49 + output)


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        (["mnist"], 1_199_882),
        (["cifar10"], 62_006),
        (["gcn"], 23_040),
        (["sentiment", "--batch-size", "1", "--length", "3"], 2_592_105),
        (["sentiment", "--model", "transformer", "--batch-size", "1"], 4_106_345),
        (["gpt"], 124_439_808),
        (["biggan", "--batch-size", "1"], 70_433_988 + 87_982_370),
    ],
)
def test_each_parameter_is_counted_once_in_80_columns(arguments: list[str], parameters: int) -> None:
    assert total(rows_of(*arguments), "parameters") == parameters
    table = run_workloads("summary", *arguments).stdout
    assert max(map(len, table.splitlines())) <= 80
    assert f"{parameters:,}" in table


def test_every_training_workload_has_layers_and_others_say_that_they_have_none() -> None:
    assert all(workload.layers for workload in WORKLOADS if workload.kind == "training")
    done = run_workloads("summary", "cpu-burn")
    assert (done.returncode, done.stderr) == (2, "error: cpu-burn has no network whose layers could be listed\n")


def test_the_agent_prints_the_table_with_parameters_of_the_workload() -> None:
    rows = json.loads(ask_layers(sys.executable, "mnist", ["batch-size=3"], as_json=True))
    assert rows[0]["output_shape"] == [3, 32, 26, 26]
    with pytest.raises(MisuseError, match="--batch-size must be at least 1"):
        ask_layers(sys.executable, "mnist", ["batch-size=0"], as_json=False)
    with pytest.raises(GpuAgentError, match="choose another with --python"):
        ask_layers("/nonexistent/python", "mnist", [], as_json=False)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["mnist", "--param", "batch-size=3"], "is for --summary"), (["--summary"], "--summary needs one workload")],
)
def test_a_summary_needs_its_option_and_one_workload(arguments: list[str], complaint: str) -> None:
    refused = CliRunner().invoke(cli, ["workloads", *arguments]).exception
    assert isinstance(refused, MisuseError)
    assert complaint in str(refused)
