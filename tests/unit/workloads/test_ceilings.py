import json
from pathlib import Path

import pytest
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.ceilings import Config
from gpuagent_workloads.suite.ceilings.measure import QUICK, measure, report_matrix_products
from gpuagent_workloads.training.timing import median_seconds, time_calls
from tests.unit.workloads.runs import of_kind, phases_of, results_of, run_reporting

CPU = torch.device("cpu")


@pytest.mark.usefixtures("forked_ranks")
def test_a_cpus_roofs_are_reported_with_their_units(tmp_path: Path) -> None:
    events = run_reporting(tmp_path, "ceilings", "--device", "cpu", "--quick", "--ranks", "2", "--threads", "1")
    assert phases_of(events) == ["setup", "measure", "teardown", "end"]
    units = {event["name"]: event.get("unit") for event in of_kind(events, "result")}
    rates = {name: unit for name, unit in units.items() if name.endswith("_per_second")}
    assert rates == {
        **{
            f"gemm_{precision}{side}_flops_per_second": "FLOP/s"
            for precision in ("fp64", "fp32", "bf16")
            for side in ("", *(f"_{side}" for side in QUICK.sides))
        },
        "dram_copy_bytes_per_second": "bytes/s",
        "dram_triad_bytes_per_second": "bytes/s",
        "all_reduce_bus_bytes_per_second": "bytes/s",
        "all_reduce_1_mib_bus_bytes_per_second": "bytes/s",
        "together_gemm_bf16_flops_per_second": "FLOP/s",
        "together_dram_copy_bytes_per_second": "bytes/s",
        "together_dram_triad_bytes_per_second": "bytes/s",
    }
    (others,) = (path for path in tmp_path.rglob("events.1.0.jsonl"))
    assert [json.loads(line)["name"] for line in others.read_text().splitlines()][:2] == [
        "device",
        "together_gemm_bf16_flops_per_second",
    ]
    results = results_of(events)
    assert (results["all_reduce_ranks"], results["all_reduce_backend"], results["quick"]) == (2, "gloo", 1)
    assert results["threads"] == 1
    sizes = [results[f"gemm_fp32_{side}_flops_per_second"] for side in QUICK.sides]
    # The best size is the roof.
    assert results["gemm_fp32_flops_per_second"] == max(sizes)
    assert results[f"gemm_fp32_{results['gemm_fp32_best_side']}_flops_per_second"] == max(sizes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_has_transfers_and_launches_beside() -> None:
    reporter = Reporter(None)
    measure(Config(device="cuda", quick=True, ranks=1), reporter)
    names = {result.name for result in reporter.results}
    assert {"host_to_device_pinned_bytes_per_second", "device_to_host_pageable_bytes_per_second"} <= names
    assert {"kernel_launch_seconds", "kernel_round_trip_seconds", "gemm_fp32_flops_per_second"} <= names


def test_measuring_leaves_the_flags_of_tf32_as_they_were() -> None:
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    report_matrix_products(QUICK, CPU, Reporter(None))
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_misuse() -> None:
    with pytest.raises(MisuseError, match="--device cuda"):
        measure(Config(device="cuda"), Reporter(None))


def test_each_call_is_timed_by_itself_and_what_is_between_is_not() -> None:
    happened: list[str] = []
    calls = time_calls(
        lambda: happened.append("work"), CPU, lambda count, _seconds: count == 2, lambda: happened.append("between")
    )
    assert happened == ["between", "work", "between", "work"]
    assert len(calls) == 2
    assert all(call.gpu_seconds is None and call.device_seconds == call.wall_seconds for call in calls)
    assert calls[0].ended_at_unix_nano < calls[1].ended_at_unix_nano


@pytest.mark.parametrize(("budget_seconds", "made"), [(0.0, 2 + 1 + 3), (1e9, 2 + 1 + 9)])
def test_repeats_are_as_many_as_can_be_afforded_and_never_fewer_than_three(budget_seconds: float, made: int) -> None:
    calls: list[None] = []
    median_seconds(lambda: calls.append(None), CPU, repeats=9, budget_seconds=budget_seconds)
    assert len(calls) == made
