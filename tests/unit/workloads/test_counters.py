"""Hardware counters, on what ncu 2025.3.1 wrote of one step on an H200: a convolution and a linear layer in TF32."""

import itertools
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_workloads import counters
from gpuagent_workloads.counters import PRECISIONS, core_flops, dram_bytes, flops_metrics, parse, tensor_flops
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.registry import find
from gpuagent_workloads.report import Reporter
from tests.unit.workloads.runs import reported

RECORDED = Path(__file__).parents[2] / "fixtures/ncu"

# Of each of the linear layer's three products: batches of 64, 64 · 32 · 32 features to 256.
LINEAR_FLOPS = 2 * 64 * (64 * 32 * 32) * 256


def recorded(name: str) -> list[str]:
    return (RECORDED / name).read_text().splitlines(keepends=True)


def test_the_metrics_of_a_gpu_are_its_cores_instructions_and_its_tensor_types() -> None:
    metrics = flops_metrics((RECORDED / "h200_query_metrics.txt").read_text())
    assert metrics[:3] == [f"smsp__sass_thread_inst_executed_op_h{kind}_pred_on.sum" for kind in ("add", "mul", "fma")]
    assert metrics[9:] == [
        f"sm__ops_path_tensor_src_{kind}.sum" for kind in ("bf16_dst_fp32", "fp16", "fp64", "fp8", "tf32_dst_fp32")
    ]


def test_math_ops_of_a_matrix_product_are_its_flops() -> None:
    readings = parse(recorded("h200_flops.csv"))
    by_kernel = [tensor_flops([reading]) for reading in readings]
    # Forward, and for the weights; the kernel of the third product works on tiles that it does not fill.
    assert by_kernel.count(LINEAR_FLOPS) == 2
    assert by_kernel.count(2 * LINEAR_FLOPS) == 1


def test_an_fma_counts_as_two_operations_and_other_instructions_as_one() -> None:
    readings = parse(recorded("h200_flops.csv"))
    total = 0.0
    for reading in readings:
        if "sass" in reading.metric:
            total += (2 if "fma" in reading.metric else 1) * reading.value
    by_precision = {precision: core_flops(readings, precision) for precision in PRECISIONS}
    assert sum(by_precision.values()) == total == 57_000_929
    # This model trains in FP32.
    assert by_precision["fp32"] > 0 == by_precision["fp64"]


def test_bytes_of_device_memory_are_those_of_both_directions() -> None:
    assert dram_bytes(parse(recorded("h200_dram.csv"))) == 298_148_864


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["==PROF== Connected to process 1\n"], "it gave no reason"),
        (["==ERROR== The application returned an error code (1).\n"], "The application returned an error code"),
        (["==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"], "NVreg_RestrictProfilingToAdminUsers=0"),
        (['"ID","Metric Name","Metric Value"\n', '"0","dram__bytes_read.sum","n/a"\n'], "it gave no reason"),
        (
            ['"ID","Metric Name","Metric Value"\n', '"0","dram__bytes_read.sum","nan"\n'],
            "could not count dram__bytes_read",
        ),
        (['"ID","Metric Name","Metric Value"\n', f'"0","{"x" * 200_000}","1"\n'], "cannot be read"),
    ],
    ids=["silent", "error", "permission", "not-there", "no-number", "huge-name"],
)
def test_ncu_without_an_answer_is_an_error_that_says_why(lines: list[str], reason: str) -> None:
    with pytest.raises(WorkloadError, match=reason):
        parse(lines)


def test_bytes_of_one_direction_are_not_taken_for_all() -> None:
    lines = [
        '"ID","Metric Name","Metric Value"\n',
        '"0","dram__bytes_read.sum","n/a"\n',
        '"0","dram__bytes_write.sum","5"\n',
    ]
    with pytest.raises(WorkloadError, match="only one direction"):
        dram_bytes(parse(lines))


def test_without_ncu_the_user_is_told_where_it_is_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MisuseError, match="Nsight Compute"):
        counters.find_ncu()


@pytest.fixture
def replayed(tmp_path: Path, install_ncu: Callable[[str], None]) -> Path:
    """An `ncu` that writes down how it is called and gives the recorded answers. Returns the log of its calls."""
    calls = tmp_path / "calls"
    install_ncu(
        f"""#!{sys.executable}
import pathlib, shutil, sys
arguments = sys.argv[1:]
with open({str(calls)!r}, "a") as log:
    print("\\0".join(arguments), file=log)
recorded = pathlib.Path({str(RECORDED)!r})
if "--version" in arguments:
    print("Version 2025.3.1.0 (build 36398880)")
elif "--query-metrics" in arguments:
    print((recorded / "h200_query_metrics.txt").read_text())
else:
    metrics = arguments[arguments.index("--metrics") + 1]
    part = "dram" if metrics.startswith("dram") else "flops"
    shutil.copy(recorded / f"h200_{{part}}.csv", arguments[arguments.index("--log-file") + 1])
"""
    )
    return calls


def test_a_workload_is_run_again_for_one_step_under_ncu(replayed: Path) -> None:
    results = report_mnist(batch_size=128, epochs=2)
    tensor_flops_per_step = results["executed_tensor_flops_per_step"]
    assert isinstance(tensor_flops_per_step, int)
    assert results["executed_flops_per_step"] == tensor_flops_per_step + 57_000_929
    assert results["dram_bytes_per_step"] == 298_148_864
    assert results["counters_source"] == "ncu 2025.3.1.0, one step of 17 kernels"
    counted = [call for call in replayed.read_text().splitlines() if "--metrics" in call]
    assert len(counted) == 2
    for call in counted:
        words = call.split("\0")
        assert {"--batch-size=128", "--steps=1", "--counters=none", "--clock-control"} <= set(words), shlex.join(words)
        assert not any(word.startswith("--epochs") for word in words)


@pytest.fixture
def install_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that puts a program onto PATH as `ncu`."""

    def install(program: str) -> None:
        (tmp_path / "ncu").write_text(program)
        (tmp_path / "ncu").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


def report_mnist(**parameters: int) -> dict[str, Any]:
    workload, reporter = find("mnist"), Reporter(None)
    counters.report_counters(workload, workload.config(**parameters, counters="ncu"), reporter)
    return reported(reporter)


def test_what_is_watched_ends_when_ncu_takes_too_long(
    tmp_path: Path, install_ncu: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    # The watched program holds the pipe open for as long as it lives.
    install_ncu(f"#!/bin/sh\nsleep 1000 3>{shlex.quote(str(pipe))} &\nwait\n")
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(counters, "_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(WorkloadError, match="ncu took more than"):
        report_mnist()
    os.set_blocking(reading, True)
    with os.fdopen(reading, "rb") as stream:
        assert stream.read() == b""


def test_a_program_that_is_no_ncu_is_quoted_in_one_harmless_line(install_ncu: Callable[[str], None]) -> None:
    install_ncu("#!/bin/sh\nprintf 'first\\n\\033[31mlast%01000d\\n' 0\n")
    with pytest.raises(WorkloadError, match=r"did not start: '\\x1b\[31mlast0+'$") as failed:
        report_mnist()
    assert len(str(failed.value)) < 400


def test_what_is_counted_is_of_the_run_that_has_ended_before(replayed: Path, tmp_path: Path) -> None:
    workload, times = find("mnist"), itertools.count()
    config = workload.config(batch_size=128, counters="ncu")
    events = tmp_path / "events.0.0.jsonl"
    with Reporter(events, now_unix_nano=lambda: next(times)) as reporter, counters.counting(workload, config, reporter):
        reporter.result("throughput", 1.0)
    written = [json.loads(line) for line in events.read_text().splitlines()]
    (begin,) = (index for index, event in enumerate(written) if event.get("name") == "counters")
    assert "executed_flops_per_step" in {event["name"] for event in written[begin:]}
    assert {event["t"] for event in written[begin:]} == {written[begin]["t"]}
    assert written[0]["t"] < written[begin]["t"]
    assert replayed.exists()
