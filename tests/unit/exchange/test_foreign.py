"""Results of foreign programs, read from tests/fixtures/imported."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.cli.import_ import FORMATS as OFFERED
from gpuagent_collector.exchange.foreign import formats
from gpuagent_collector.exchange.foreign.formats import FORMATS, load, read_results
from gpuagent_collector.exchange.foreign.result import ForeignRun, Node, ResultError

FILES = Path(__file__).parents[2] / "fixtures" / "imported"


def read(name: str, format_name: str | None = None) -> list[ForeignRun]:
    return list(read_results(FILES / name, load(FILES / name), format_name))


def figures(run: ForeignRun) -> dict[str, Any]:
    assert len({figure.name for figure in run.figures}) == len(run.figures)
    return {figure.name: figure.value for figure in run.figures}


def at(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - as the store holds times


def test_the_command_offers_each_format() -> None:
    assert tuple(each.name for each in FORMATS) == OFFERED


def test_a_result_of_vllm_has_its_figures_in_seconds() -> None:
    (run,) = read("vllm-rate4.json")
    assert (run.program, run.version, run.workload) == ("vllm bench serve", None, "serve-load")
    assert run.parameters == {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "rate": 4.0,
        "concurrency": None,
        "burstiness": 1.0,
        "api": "completions",
    }
    assert (run.started_at, run.ended_at) == (at(2026, 11, 23, 14, 19, 28, 500_000), at(2026, 11, 23, 14, 20, 31))
    assert run.phases == [("measure", run.started_at), ("teardown", run.ended_at)]
    assert run.reason is None
    assert figures(run) == {
        "throughput": 243.712,
        "requests_per_second": 3.808,
        "goodput": 3.52,
        "input_tokens_per_second": 60928 / 62.5,
        "input_tokens_mean": 256,
        "output_tokens_mean": 64,
        "ttft_p50_seconds": 0.0385,
        "ttft_p90_seconds": 0.05225,
        "ttft_p99_seconds": 0.081125,
        "tpot_p50_seconds": 0.00725,
        "tpot_p90_seconds": 0.008125,
        "tpot_p99_seconds": 0.0095,
        "e2e_p50_seconds": 0.49525,
        "e2e_p90_seconds": 0.5615,
        "e2e_p99_seconds": 0.64,
        "requests": 240,
        "request_errors": 2,
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "tokenizer": "meta-llama/Llama-3.1-8B-Instruct",
        "backend": "openai",
    }


def test_what_a_result_of_vllm_lacks_is_absent() -> None:
    (run,) = read("vllm-default.json")
    found = figures(run)
    assert run.parameters["concurrency"] == 16
    assert run.parameters["rate"] is None
    assert run.parameters["api"] == "chat"
    assert "burstiness" not in run.parameters
    assert (found["ttft_p50_seconds"], found["ttft_p99_seconds"]) == (0.09775, 0.1805)
    assert not {"ttft_p90_seconds", "e2e_p50_seconds", "goodput", "request_errors"} & found.keys()


def test_lines_of_results_are_runs_each() -> None:
    one = json.loads((FILES / "vllm-rate4.json").read_text())
    content = "\n".join(json.dumps({**one, "request_rate": rate}) for rate in (1.0, 2.0))
    runs = read_results(Path("all.json"), content.encode(), None)
    assert [run.parameters["rate"] for run in runs] == [1.0, 2.0]


def test_a_load_that_no_request_survived_has_failed_without_figures() -> None:
    one = json.loads((FILES / "vllm-rate4.json").read_text())
    nothing = {**one, "completed": 0, "failed": 240, "request_throughput": 0.0, "output_throughput": 0.0}
    (run,) = read_results(Path("none.json"), json.dumps(nothing).encode(), None)
    assert run.reason == "no request succeeded"
    assert "throughput" not in figures(run)
    assert "ttft_p50_seconds" not in figures(run)


def test_nccl_tests_have_a_point_for_each_size_and_their_devices() -> None:
    (run,) = read("nccl-all-reduce.txt")
    assert (run.program, run.version, run.workload) == ("nccl-tests", "2.17.6", "collectives")
    assert run.nodes == [Node(hostname="gpu-a", gpus=("NVIDIA H200",) * 4)]
    assert (run.started_at, run.ended_at, run.platform) == (None, None, None)
    assert run.parameters == {
        "collective": "all_reduce",
        "dtype": "float",
        "operation": "sum",
        "min_bytes": 1048576,
        "max_bytes": 1073741824,
        "sizes": 3,
        "graph": 0,
    }
    found = figures(run)
    assert found["all_reduce_33554432_bus_bytes_per_second"] == pytest.approx(258.8e9, rel=1e-12)
    assert found["all_reduce_33554432_bytes_per_second"] == pytest.approx(172.5e9, rel=1e-12)
    assert found["all_reduce_1048576_seconds"] == pytest.approx(33.25e-6, rel=1e-12)
    assert found["all_reduce_average_bus_bytes_per_second"] == pytest.approx(221.02e9, rel=1e-12)
    assert found["throughput"] == found["all_reduce_bus_bytes_per_second"] == pytest.approx(356.96e9, rel=1e-12)
    assert (found["ranks"], found["nccl_version"]) == (4, "22807")


def test_nccl_tests_with_wrong_values_have_failed_and_older_ones_have_no_version() -> None:
    (run,) = read("nccl-two-nodes.txt")
    assert run.reason == "3 wrong values"
    assert run.version is None
    assert run.parameters["collective"] is None
    assert run.parameters["operation"] is None
    assert [(node.hostname, len(node.gpus)) for node in run.nodes] == [("gpu-a", 2), ("gpu-b", 2)]


def test_a_log_of_mlperf_training_has_the_time_to_train_and_the_quality_over_time() -> None:
    (run,) = read("mlperf-training.log")
    assert (run.program, run.workload, run.platform) == ("mlperf-training", "mlperf-llama2_70b_lora", "1xExample8")
    assert (run.started_at, run.ended_at) == (at(2025, 10, 9, 16, 43, 20), at(2025, 10, 9, 17, 4, 21, 500_000))
    assert [name for name, _ in run.phases] == ["setup", "measure", "teardown"]
    assert run.reason is None
    found = figures(run)
    assert found["time_to_train_seconds"] == 1201.0
    assert found["eval_accuracy"] == 0.924
    assert (found["global_batch_size"], found["seed"], found["submission_org"]) == (8, 1234, "Example")
    assert [detail["value"] for _, _, detail in run.evaluations] == [0.941, 0.924]
    assert [detail["step"] for _, _, detail in run.evaluations] == [1536, 3072]


def test_an_aborted_training_has_failed() -> None:
    content = (FILES / "mlperf-training.log").read_text().replace('"status": "success"', '"status": "aborted"')
    (run,) = read_results(Path("result_0.txt"), content.encode(), None)
    assert run.reason == "run_stop: aborted"


def test_a_summary_of_mlperf_inference_is_in_seconds() -> None:
    (run,) = read("mlperf_log_summary.txt")
    assert (run.program, run.workload) == ("mlperf-inference", "mlperf-inference")
    assert run.parameters == {"scenario": "Server", "mode": "PerformanceOnly", "rate": 104.0}
    found = figures(run)
    assert (found["throughput"], found["requests_per_second"]) == (29500.5, 103.5)
    assert (found["ttft_p90_seconds"], found["tpot_p99_seconds"], found["e2e_p50_seconds"]) == (1.445, 0.165, 32.5)
    assert run.reason is None


def test_an_invalid_result_of_mlperf_inference_has_failed() -> None:
    content = (FILES / "mlperf_log_summary.txt").read_text()
    content = content.replace("Result is : VALID", "Result is : INVALID").replace(
        "TTFT Early", "Recommendations:\n * TTFT constrain not met: Reduce target QPS to improve latency.\nTTFT Early"
    )
    (run,) = read_results(Path("summary.txt"), content.encode(), None)
    assert run.reason == "loadgen: invalid; TTFT constrain not met: Reduce target QPS to improve latency."


# Name of a file → its format.
KINDS = {
    "vllm-rate4.json": "vllm-bench",
    "nccl-all-reduce.txt": "nccl-tests",
    "mlperf-training.log": "mlperf-training",
    "mlperf_log_summary.txt": "mlperf-inference",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_each_file_is_recognised_by_one_format_alone(name: str, kind: str) -> None:
    assert read(name, kind) == read(name)
    for other in {each.name for each in FORMATS} - {kind}:
        with pytest.raises(ResultError, match=f"no result of {other}"):
            read(name, other)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_is_cut_off_anywhere_is_refused_or_whole(name: str, tmp_path: Path) -> None:
    whole = (FILES / name).read_bytes()
    expected = read(name)
    for length in range(1, len(whole), max(1, len(whole) // 60)):
        try:
            runs = list(read_results(tmp_path / name, whole[:length], None))
        except ResultError as error:
            assert "\n" not in str(error)
        else:
            assert runs == expected, f"the first {length} bytes were taken for a whole file"


def _damaged(change: Callable[[dict[str, Any]], Any]) -> bytes:
    document = json.loads((FILES / "vllm-rate4.json").read_text())
    return json.dumps(change(document)).encode()


HOSTILE: Mapping[str, bytes] = {
    "binary": b"\x7fELF\x00\xff",
    "deep": b'{"date": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "other": b'{"hello": 1}',
    "prose": b"Dear Sir or Madam\n",
    "negative": _damaged(lambda one: {**one, "p90_ttft_ms": -1}),
    "text for a number": _damaged(lambda one: {**one, "duration": "long"}),
    "list for a number": _damaged(lambda one: {**one, "completed": []}),
    "part of a request": _damaged(lambda one: {**one, "completed": 1.5}),
    "year 0": _damaged(lambda one: {**one, "date": "00000101-000000"}),
    "before time": _damaged(lambda one: {**one, "duration": 1e200}),
    "long name": _damaged(lambda one: {**one, "model_id": "x" * 5000}),
    "half a character": _damaged(lambda one: {**one, "model_id": "\ud800"}),
    "no date": _damaged(lambda one: {**one, "date": None, "model_id": {}}),
    "huge number": _damaged(lambda one: one).replace(b"62.5", b"9" * 6000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_is_one_sentence(name: str) -> None:
    if name == "huge number":
        # Infinity is no duration, so that the begin is unknown.
        (run,) = read_results(Path("f.json"), HOSTILE[name], None)
        assert run.started_at is None
        return
    with pytest.raises(ResultError) as refused:
        read_results(Path("f.json"), HOSTILE[name], None)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_an_empty_a_large_and_no_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("\n")
    with pytest.raises(ResultError, match="is empty"):
        load(empty)
    with pytest.raises(ResultError, match="is no file"):
        load(Path("/dev/zero"))
    monkeypatch.setattr(formats, "MOST_BYTES", 1 << 20)
    large = tmp_path / "large.json"
    large.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(ResultError, match="larger than 1 MiB"):
        load(large)
