"""Results of foreign programs, read from tests/fixtures/imported."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.cli.import_ import FORMATS as OFFERED
from gpuagent_collector.exchange.foreign import store
from gpuagent_collector.exchange.foreign.result import ForeignRun, Node, ResultError
from gpuagent_collector.exchange.foreign.store import FORMATS, load, read_results

FILES = Path(__file__).parents[2] / "fixtures" / "imported"


def read(name: str, format_name: str | None = None) -> list[ForeignRun]:
    return list(read_results(FILES / name, load(FILES / name), format_name))


def figures(run: ForeignRun) -> dict[str, Any]:
    assert len({figure.name for figure in run.figures}) == len(run.figures)
    return {figure.name: figure.value for figure in run.figures}


def at(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - as the store holds times


def test_the_command_offers_each_format() -> None:
    assert tuple(FORMATS) == OFFERED


def test_a_result_of_vllm_has_its_figures_in_seconds() -> None:
    (run,) = read("vllm-rate4.json")
    assert (run.program, run.version, run.workload) == ("vllm bench serve", None, "serve-load")
    assert run.parameters == {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "rate": 4.0,
        "concurrency": None,
        "burstiness": 1.0,
        "api": "completions",
        "input": "≈256",
        "output": "≈64",
    }
    assert (run.started_at, run.ended_at) == (at(2026, 11, 23, 14, 19, 28, 500_000), at(2026, 11, 23, 14, 20, 31))
    assert run.phases == [("measure", run.started_at), ("end", run.ended_at)]
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


def test_a_profile_of_aiperf_has_its_load_and_its_figures() -> None:
    (run,) = read("aiperf-poisson.json")
    assert (run.program, run.version, run.workload) == ("aiperf", "0.13.0", "serve-load")
    assert run.parameters == {
        "model": "tiny",
        "rate": 4.0,
        "concurrency": None,
        "burstiness": 1.0,
        "api": "completions",
        "input": "32",
        "output": "16",
        "slo-ttft": 500.0,
        "slo-tpot": 100.0,
    }
    assert (run.started_at, run.ended_at) == (
        at(2026, 11, 23, 15, 38, 51, 381_783),
        at(2026, 11, 23, 15, 38, 59, 20_302),
    )
    assert figures(run) == {
        "throughput": 62.83940364584315,
        "input_tokens_per_second": 125.6788072916863,
        "requests_per_second": 3.927462727865197,
        "goodput": 3.927462727865197,
        "goodput_percent": 100.0,
        "ttft_p50_seconds": 26.802778 / 1000,
        "ttft_p90_seconds": 56.566256200000005 / 1000,
        "ttft_p99_seconds": 75.17171397 / 1000,
        "tpot_p50_seconds": 12.964934 / 1000,
        "tpot_p90_seconds": 18.44454529333333 / 1000,
        "tpot_p99_seconds": 20.89529316866667 / 1000,
        "e2e_p50_seconds": 235.43072999999998 / 1000,
        "e2e_p90_seconds": 298.9657713 / 1000,
        "e2e_p99_seconds": 342.32314082000005 / 1000,
        "client_lag_p99_seconds": 27.44972544000001 / 1000,
        "requests": 30,
        "request_errors": 0,
        "input_tokens_mean": 32.0,
        "output_tokens_mean": 16.0,
        "model": "tiny",
    }


def test_a_closed_loop_of_aiperf_has_its_users_and_the_spread_of_its_lengths() -> None:
    (run,) = read("aiperf-concurrency.json")
    assert run.parameters == {
        "model": "tiny",
        "rate": None,
        "concurrency": 2,
        "api": "chat",
        "input": "normal:32:8",
        "output": "16",
    }
    assert "goodput" not in figures(run)


def test_the_csv_of_aiperf_has_the_figures_of_its_json_to_two_digits() -> None:
    (run,) = read("aiperf-poisson.csv")
    whole = {name: value for name, value in figures(read("aiperf-poisson.json")[0]).items() if name != "model"}
    found = figures(run)
    assert found.keys() == whole.keys()
    for name, value in found.items():
        exact = whole[name] * (1000 if name.endswith("_seconds") else 1)
        assert value * (1000 if name.endswith("_seconds") else 1) == pytest.approx(exact, abs=0.0051), name
    assert (run.version, run.parameters, run.ended_at) == (None, {"input": "≈32", "output": "≈16"}, None)


def test_what_aiperf_saw_of_gpus_and_of_its_end_is_taken_over() -> None:
    document = json.loads((FILES / "aiperf-poisson.json").read_text())
    gpus = {str(index): {"gpu_name": "NVIDIA H200", "hostname": "gpu-a"} for index in range(2)}
    document["telemetry_data"]["endpoints"] = {"http://gpu-a:9400/metrics": {"gpus": gpus}}
    (run,) = read_results(Path("a.json"), json.dumps({**document, "was_cancelled": True}).encode(), None)
    assert run.nodes == [Node(hostname="gpu-a", gpus=("NVIDIA H200", "NVIDIA H200"))]
    assert run.reason == "cancelled or incomplete"


def test_a_report_of_guidellm_is_a_run_for_each_level_of_load() -> None:
    runs = read("guidellm-concurrent.json")
    assert [run.parameters["concurrency"] for run in runs] == [1, 2]
    assert {run.version for run in runs} == {"0.8.1"}
    assert runs[0].parameters == {
        "model": "tiny",
        "rate": None,
        "concurrency": 1,
        "api": "chat",
        "input": "32",
        "output": "16",
        "slo-ttft": 200.0,
        "slo-tpot": 50.0,
    }
    benchmark = json.loads((FILES / "guidellm-concurrent.json").read_text())["benchmarks"][0]["metrics"]
    found = figures(runs[0])
    assert (found["goodput_percent"], found["requests"], found["request_errors"]) == (100.0, 14, 0)
    assert found["goodput"] == benchmark["request_goodput"]["successful"]["mean"]
    further = benchmark["inter_token_latency_ms"]["successful"]["percentiles"]["p90"]
    assert found["tpot_p90_seconds"] == further / 1000
    assert further != benchmark["time_per_output_token_ms"]["successful"]["percentiles"]["p90"]


def test_an_open_loop_of_guidellm_is_in_seconds() -> None:
    (run,) = read("guidellm-poisson.json")
    assert run.parameters["rate"] == 4.0
    assert run.parameters["burstiness"] == 1.0
    assert run.started_at == at(2026, 11, 23, 15, 29, 54, 670_432)
    found = figures(run)
    assert (found["ttft_p90_seconds"], found["e2e_p50_seconds"]) == (0.6340515613555908, 1.1499459743499756)
    assert (found["throughput"], found["requests_per_second"], found["requests"]) == (103.25, 6.375, 51)
    assert "goodput" not in found


@pytest.mark.parametrize(
    ("name", "place", "other", "why"),
    [
        ("guidellm-poisson.json", ("metadata", "version"), 1, "its report has version 1; version 2 of guidellm"),
        ("aiperf-poisson.json", ("schema_version",), "2.0", "it has schema 2.0; schema 1 of aiperf can be read"),
        ("guidellm-poisson.json", ("benchmarks",), [], "has no results"),
        ("guidellm-poisson.json", ("benchmarks",), [{}], "a benchmark lacks its requests or its strategy"),
        ("aiperf-poisson.json", ("input_config",), {"phases": 7}, "damaged or of an unknown version of aiperf"),
        ("aiperf-poisson.json", ("end_time",), "2020-01-01T00:00:00", "end_time is before start_time"),
    ],
)
def test_another_version_is_refused(name: str, place: tuple[str, ...], other: object, why: str) -> None:
    document = json.loads((FILES / name).read_text())
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = other
    with pytest.raises(ResultError, match=why):
        read_results(Path(name), json.dumps(document).encode(), None)


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
        "threads": 1,
        "iterations": 20,
        "aggregated": 1,
    }
    found = figures(run)
    assert found["all_reduce_33554432_bytes_bus_bytes_per_second"] == pytest.approx(258.8e9, rel=1e-12)
    assert found["all_reduce_33554432_bytes_algorithm_bytes_per_second"] == pytest.approx(172.5e9, rel=1e-12)
    assert found["all_reduce_1048576_bytes_seconds"] == pytest.approx(33.25e-6, rel=1e-12)
    assert found["all_reduce_average_bus_bytes_per_second"] == pytest.approx(221.02e9, rel=1e-12)
    assert found["all_reduce_bus_bytes_per_second"] == pytest.approx(356.96e9, rel=1e-12)
    # Bus bandwidth is normalised by the ranks already: a rate of each GPU must not be derived from it.
    assert "throughput" not in found
    assert (found["ranks"], found["nccl_version"]) == (4, "2.28.7")


@pytest.mark.parametrize(
    ("program", "operation"),
    [("alltoall", "all_to_all"), ("sendrecv", "send_recv"), ("reduce_scatter", "reduce_scatter")],
)
def test_nccl_tests_have_the_names_of_the_workload_collectives(program: str, operation: str) -> None:
    content = (FILES / "nccl-all-reduce.txt").read_text().replace("all_reduce_perf", f"{program}_perf")
    (run,) = read_results(Path("out.txt"), content.replace("library=22807", "library=2708").encode(), None)
    assert run.parameters["collective"] == operation
    found = figures(run)
    assert {f"{operation}_1048576_bytes_seconds", f"{operation}_bus_bytes_per_second"} <= found.keys()
    assert found["nccl_version"] == "2.7.8"


def test_nccl_tests_that_measure_a_size_twice_are_refused() -> None:
    content = (FILES / "nccl-all-reduce.txt").read_text()
    with pytest.raises(ResultError, match="measures 1048576 bytes 2 times"):
        read_results(Path("both.txt"), (content + content).encode(), None)


def test_a_long_line_of_nccl_tests_is_read_at_once() -> None:
    # With a regex that begins at each of the characters, these take hours.
    content = (FILES / "nccl-all-reduce.txt").read_text()
    long = f"{'#' * 1_000_000}\n{content}"
    assert list(read_results(Path("long.txt"), long.encode(), None)) == read("nccl-all-reduce.txt")
    cut = content.partition("# Avg")[0] + "# Avg bus bandwidth : " + "1" * 1_000_000
    with pytest.raises(ResultError, match="average bus bandwidth"):
        read_results(Path("long.txt"), cut.encode(), None)


def test_nccl_tests_with_wrong_values_have_failed_and_older_ones_have_no_version() -> None:
    (run,) = read("nccl-two-nodes.txt")
    assert run.reason == "3 wrong values"
    assert run.version is None
    assert run.parameters["collective"] is None
    assert run.parameters["operation"] is None
    assert [(node.hostname, len(node.gpus)) for node in run.nodes] == [("gpu-a", 2), ("gpu-b", 2)]


@pytest.mark.parametrize("place", [("258.8       0", "258.8      17"), ("258.0       0", "258.0      17")])
def test_nccl_tests_with_wrong_values_of_a_size_have_failed_whatever_the_sum_says(place: tuple[str, str]) -> None:
    content = (FILES / "nccl-all-reduce.txt").read_text()
    assert content.count(place[0]) == 1
    (run,) = read_results(Path("out.txt"), content.replace(*place).encode(), None)
    assert run.reason == "17 wrong values"
    older = content.replace(*place).replace("#wrong", " error")
    (run,) = read_results(Path("out.txt"), older.encode(), None)
    assert run.reason is None


@pytest.mark.parametrize("written", ["-nan", "nan", "inf", "-1.0", "12..5", ""])
def test_a_size_of_nccl_tests_without_a_time_does_not_vanish(written: str) -> None:
    content = (FILES / "nccl-all-reduce.txt").read_text()
    changed = re.sub(r"(?m)194\.5 .*$", written, content) if not written else content.replace("194.5", written)
    with pytest.raises(ResultError):
        read_results(Path("out.txt"), changed.encode(), None)


def test_a_log_of_mlperf_training_has_the_time_to_train_and_the_quality_over_time() -> None:
    (run,) = read("mlperf-training.log")
    assert (run.program, run.workload, run.platform) == ("mlperf-training", "mlperf-llama2_70b_lora", "1xExample8")
    assert (run.started_at, run.ended_at) == (at(2025, 10, 9, 16, 43, 20), at(2025, 10, 9, 17, 4, 21, 500_000))
    assert [name for name, _ in run.phases] == ["setup", "measure", "end"]
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


@pytest.mark.parametrize("status", [', "status": ""', ', "status": null', ""])
def test_a_training_without_a_status_has_failed(status: str) -> None:
    content = (FILES / "mlperf-training.log").read_text().replace(', "status": "success"', status)
    (run,) = read_results(Path("result_0.txt"), content.encode(), None)
    assert run.reason == "run_stop: no status"


@pytest.mark.parametrize("benchmark", ["null", '""'])
def test_a_training_of_no_benchmark_is_refused(benchmark: str) -> None:
    content = (FILES / "mlperf-training.log").read_text().replace('"llama2_70b_lora"', benchmark)
    with pytest.raises(ResultError, match="submission_benchmark has no value"):
        read_results(Path("result_0.txt"), content.encode(), None)


def test_two_trainings_in_a_file_are_refused() -> None:
    content = (FILES / "mlperf-training.log").read_text()
    with pytest.raises(ResultError, match="2 runs; import"):
        read_results(Path("results.txt"), (content + content).encode(), None)


@pytest.mark.parametrize(
    ("backend", "api"),
    [
        ("openai", "completions"),
        ("vllm", "completions"),
        ("openai-chat", "chat"),
        ("openai-embeddings", "openai-embeddings"),
        ("openai-embeddings-chat", "openai-embeddings-chat"),
    ],
)
def test_the_api_of_vllm_is_that_of_its_backend_or_its_name(backend: str, api: str) -> None:
    one = json.loads((FILES / "vllm-rate4.json").read_text())
    (run,) = read_results(Path("one.json"), json.dumps({**one, "backend": backend}).encode(), None)
    assert run.parameters["api"] == api


def test_aiperf_cannot_have_more_successes_than_requests() -> None:
    document = json.loads((FILES / "aiperf-poisson.json").read_text())
    document["completed_request_count"]["avg"] = 29
    with pytest.raises(ResultError, match="request_count is 30, more than the 29 of completed_request_count"):
        read_results(Path("a.json"), json.dumps(document).encode(), None)


@pytest.mark.parametrize("name", ["aiperf-poisson.json", "genai-perf-options.json"])
def test_a_load_that_no_request_survived_has_failed_in_aiperf_too(name: str) -> None:
    document = json.loads((FILES / name).read_text())
    document["request_count"] = {"unit": "requests", "avg": 0}
    (run,) = read_results(Path("a.json"), json.dumps(document).encode(), None)
    assert run.reason == "no request succeeded"
    assert figures(run).keys() <= {"request_errors", "model"}


# Name of a file → a number that it states as it writes it.
NUMBERS = {
    "aiperf-poisson.json": "output_token_throughput",
    "genai-perf-options.json": "output_token_throughput",
    "vllm-rate4.json": "output_throughput",
    "sglang.jsonl": "output_throughput",
    "guidellm-poisson.json": "output_tokens_per_second",
}


@pytest.mark.parametrize("written", ["NaN", "1e400", "-Infinity", "-140", '"140"'])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_figure_that_is_no_number_is_refused_by_its_name(name: str, written: str) -> None:
    content = (FILES / name).read_text()
    field = NUMBERS[name]
    number = r"-?\d[\d.e+-]*"
    where = {"guidellm-poisson.json": rf'(?s)("{field}".*?"total": \{{.*?"mean": ){number}'}
    where |= dict.fromkeys(("vllm-rate4.json", "sglang.jsonl"), rf'("{field}": ){number}')
    changed, times = re.subn(where.get(name, rf'(?s)("{field}".*?"avg": ){number}'), rf"\g<1>{written}", content)
    assert times
    with pytest.raises(ResultError, match=f"{field} is .*, not a number from 0 up"):
        read_results(Path(name), changed.encode(), None)


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


@pytest.mark.parametrize("written", ["NaN", "Infinity", "1e400", "1" + "0" * 400, '"high"', "true", "null"])
def test_a_quality_that_is_no_number_is_absent(written: str) -> None:
    content = (FILES / "mlperf-training.log").read_text().replace('"value": 0.9', f'"value": {written}, "was": 0.9')
    (run,) = read_results(Path("result_0.txt"), content.encode(), None)
    assert [detail["value"] for _, _, detail in run.evaluations] == [None, None]
    assert "eval_accuracy" not in figures(run)


def test_a_loss_may_be_negative() -> None:
    content = (FILES / "mlperf-training.log").read_text().replace('"value": 0.9', '"value": -0.9')
    (run,) = read_results(Path("result_0.txt"), content.encode(), None)
    assert [detail["value"] for _, _, detail in run.evaluations] == [-0.941, -0.924]


def test_a_long_line_of_a_summary_is_read_at_once() -> None:
    # With a regex that goes back over the spaces, this takes hours.
    spaces = " " * 100_000
    content = (FILES / "mlperf_log_summary.txt").read_text() + f"{spaces}x{spaces}x\n"
    assert list(read_results(Path("summary.txt"), content.encode(), None)) == read("mlperf_log_summary.txt")


def _changed_summary(line: str, value: str) -> bytes:
    content = (FILES / "mlperf_log_summary.txt").read_text()
    return re.sub(rf"(?m)^({re.escape(line)} *): .*$", rf"\1: {value}", content).encode()


@pytest.mark.parametrize(
    "line",
    [
        "Completed samples per second",
        "Completed tokens per second",
        "90.00 percentile first token latency (ns)",
    ],
)
def test_a_summary_has_no_figure_that_is_negative_or_no_number(line: str) -> None:
    with pytest.raises(ResultError, match=r"is -5\.0, not"):
        read_results(Path("summary.txt"), _changed_summary(line, "-5"), None)
    with pytest.raises(ResultError, match="is nan, not"):
        read_results(Path("summary.txt"), _changed_summary(line, "nan"), None)


# Name of a file → its format.
KINDS = {
    "aiperf-poisson.json": "aiperf",
    "aiperf-1.0.json": "aiperf",
    "aiperf-1.3-public.json": "aiperf",
    "genai-perf-options.json": "genai-perf",
    "genai-perf-nested.json": "genai-perf",
    "vllm-2024.json": "vllm-bench",
    "sglang.jsonl": "sglang-bench",
    "sglang-2024.jsonl": "sglang-bench",
    "nccl-tagged.txt": "nccl-tests",
    "aiperf-poisson.csv": "aiperf-csv",
    "guidellm-poisson.json": "guidellm",
    "vllm-rate4.json": "vllm-bench",
    "nccl-all-reduce.txt": "nccl-tests",
    "mlperf-training.log": "mlperf-training",
    "mlperf_log_summary.txt": "mlperf-inference",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_each_file_is_recognised_by_one_format_alone(name: str, kind: str) -> None:
    assert read(name, kind) == read(name)
    for other in FORMATS.keys() - {kind}:
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
    "more requests than a double holds": _damaged(lambda one: {**one, "completed": 2**63}),
    "long field": (FILES / "aiperf-poisson.csv").read_bytes() + b"x" * 131_073 + b",1\n",
    "year 0": _damaged(lambda one: {**one, "date": "00000101-000000"}),
    "before time": _damaged(lambda one: {**one, "duration": 1e200}),
    "long name": _damaged(lambda one: {**one, "model_id": "x" * 5000}),
    "half a character": _damaged(lambda one: {**one, "model_id": "\ud800"}),
    "no date": _damaged(lambda one: {**one, "date": None, "model_id": {}}),
    "huge number": _damaged(lambda one: one).replace(b"62.5", b"9" * 6000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_is_one_sentence(name: str) -> None:
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
    monkeypatch.setattr(store, "MOST_BYTES", 1 << 20)
    large = tmp_path / "large.json"
    large.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(ResultError, match="larger than 1 MiB"):
        load(large)


def test_settings_of_aiperf_are_conditions_whichever_version_wrote_them() -> None:
    (old,) = read("aiperf-1.0.json")
    assert (old.program, old.version) == ("aiperf", "0.5.0")
    assert old.parameters == {
        "model": "example/model-8b",
        "rate": 4.0,
        "concurrency": None,
        "max_concurrency": 32,
        "burstiness": "constant",
        "load": '{"prefill_concurrency": 2}',
        "api": "chat",
        "input": "normal:256:16",
        "output": "64",
        "dataset": '{"prefix_prompt": {"length": 128, "pool_size": 4}}',
    }
    (new,) = read("aiperf-1.3-public.json")
    # Phases without a kind, two models, and a dataset of which only the mean lengths are known.
    assert new.parameters == {
        "model": "model-a,model-b",
        "rate": None,
        "concurrency": 16,
        "api": "chat",
        "request": '{"extra": {"temperature": 0.0}}',
        "input": "≈268.8",
        "output": "≈67.2",
        "dataset": '{"dataset": "sharegpt", "type": "public"}',
    }


def test_genai_perf_is_no_aiperf_and_has_its_own_settings() -> None:
    for name, lengths in (
        ("genai-perf-options.json", {"input": "normal:256:8", "output": "64"}),
        ("genai-perf-nested.json", {"input": "256", "output": "≈67.2"}),
    ):
        (run,) = read(name)
        assert (run.program, run.version) == ("genai-perf", None)
        load = {"model": "example/model-8b", "rate": None, "concurrency": 8, "api": "chat"}
        assert run.parameters == {**load, **lengths}


def test_a_file_with_settings_of_aiperf_and_no_version_is_no_aiperf() -> None:
    document = json.loads((FILES / "aiperf-1.0.json").read_text())
    del document["schema_version"], document["aiperf_version"], document["input_config"]["cli_command"]
    (run,) = read_results(Path("a.json"), json.dumps(document).encode(), None)
    assert (run.program, run.parameters["max_concurrency"]) == ("genai-perf", 32)


@pytest.mark.parametrize("name", ["aiperf-1.0.json", "genai-perf-options.json"])
def test_figures_are_in_the_unit_that_is_written_or_refused(name: str) -> None:
    document = json.loads((FILES / name).read_text())
    expected = figures(read(name)[0])
    for unit, factor in (("s", 1e-3), ("us", 1e3), ("ns", 1e6)):
        latency = {key: value * factor for key, value in document["time_to_first_token"].items() if key != "unit"}
        other = {**document, "time_to_first_token": {**latency, "unit": unit}}
        (run,) = read_results(Path("a.json"), json.dumps(other).encode(), None)
        assert figures(run)["ttft_p99_seconds"] == pytest.approx(expected["ttft_p99_seconds"])
    for metric in ("time_to_first_token", "output_token_throughput", "input_sequence_length", "request_count"):
        other = {**document, metric: {**document[metric], "unit": "fortnights"}}
        with pytest.raises(ResultError, match=f"the unit of {metric} is 'fortnights'"):
            read_results(Path("a.json"), json.dumps(other).encode(), None)
    del document["time_to_first_token"]["unit"]
    with pytest.raises(ResultError, match="time_to_first_token is ''"):
        read_results(Path("a.json"), json.dumps(document).encode(), None)


IMPOSSIBLE = [
    ("aiperf-1.0.json", ("time_to_first_token",), {"p50": 70.0}),
    ("aiperf-1.0.json", ("request_latency",), {"avg": 1e6}),
    ("aiperf-1.0.json", ("inter_token_latency",), {"min": 7.4}),
    ("aiperf-1.0.json", ("output_sequence_length",), {"max": 10.0}),
    ("genai-perf-options.json", ("time_to_first_token",), {"p99": 0.001}),
    ("guidellm-poisson.json", ("benchmarks", "0", "metrics", "request_latency", "successful"), {"max": 0.001}),
    ("vllm-rate4.json", (), {"p99_ttft_ms": 0.5}),
]


@pytest.mark.parametrize(("name", "place", "change"), IMPOSSIBLE)
def test_statistics_that_contradict_each_other_are_refused(
    name: str, place: tuple[str, ...], change: dict[str, float]
) -> None:
    document = json.loads((FILES / name).read_text())
    found = document
    for key in place:
        found = found[int(key)] if key.isdigit() else found[key]
    assert found.keys() >= change.keys()
    found.update(change)
    with pytest.raises(ResultError, match="more than its"):
        read_results(Path(name), json.dumps(document).encode(), None)


def test_the_unit_of_a_line_of_the_csv_of_aiperf_counts() -> None:
    content = (FILES / "aiperf-poisson.csv").read_text()
    (run,) = read_results(Path("a.csv"), content.replace("First Token (ms)", "First Token (s)").encode(), None)
    assert figures(run)["ttft_p50_seconds"] == pytest.approx(26.80)
    with pytest.raises(ResultError, match="time_to_first_token is 'weeks'"):
        read_results(Path("a.csv"), content.replace("First Token (ms)", "First Token (weeks)").encode(), None)


def test_an_early_file_of_vllm_has_its_load_and_its_metadata_as_conditions() -> None:
    (run,) = read("vllm-2024.json")
    assert run.parameters == {
        "model": "example/model-7b",
        "rate": None,
        "concurrency": None,
        "profile": "throughput",
        "requests": 200,
        "api": "completions",
        "input": "≈215",
        "output": "≈198",
        "tensor_parallel_size": "2",
    }
    assert figures(run)["ttft_p99_seconds"] == 2.1


@pytest.mark.parametrize(
    "change", [{"best_of": 4}, {"use_beam_search": True}, {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1}]
)
def test_settings_of_vllm_are_conditions(change: dict[str, Any]) -> None:
    one = json.loads((FILES / "vllm-2024.json").read_text())
    (run,) = read_results(Path("one.json"), json.dumps({**one, **change}).encode(), None)
    assert change.items() <= run.parameters.items()


def test_data_and_loads_of_guidellm_without_a_parameter_are_conditions() -> None:
    document = json.loads((FILES / "guidellm-poisson.json").read_text())
    document["config"]["spec"]["data"] = [{"kind": "huggingface", "source": "example/chats"}]
    strategy = document["benchmarks"][0]["config"]["strategy"]
    strategy |= {"type_": "throughput", "rate": None, "max_concurrency": 512}
    (run,) = read_results(Path("a.json"), json.dumps(document).encode(), None)
    found = figures(run)
    assert run.parameters["input"] == f"≈{found['input_tokens_mean']:.6g}"
    assert (run.parameters["profile"], run.parameters["load"]) == ("throughput", '{"max_concurrency": 512}')
    assert json.loads(run.parameters["dataset"])["data"] == document["config"]["spec"]["data"]


def test_an_early_report_of_guidellm_is_refused_with_its_version() -> None:
    early = {"benchmarks": [{"type_": "generative_benchmark", "args": {}, "run_stats": {}, "metrics": {}}]}
    with pytest.raises(ResultError, match="version None; version 2"):
        read_results(Path("a.json"), json.dumps(early).encode(), None)


@pytest.mark.parametrize(
    "tag",
    [
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "[prterun-node-7-4117@1,0]<stdout>: ",
        "Thu Nov 26 10:41:40 2026[1,0]<stdout>:",
        "0: ",
        "12: ",
        "[0] ",
    ],
)
def test_tags_of_launchers_are_stripped_from_nccl_tests(tag: str) -> None:
    content = (FILES / "nccl-all-reduce.txt").read_text()
    tagged = "".join(f"{tag}{line}\n" for line in content.splitlines())
    noise = f"{tag}node-7:22:22 [0] NCCL INFO Using network Socket\nWarning: Permanently added 'node-7'\n"
    (run,) = read_results(Path("out.txt"), (noise + tagged).encode(), None)
    assert run == read("nccl-all-reduce.txt")[0]


def test_two_processes_that_each_measured_are_not_mixed() -> None:
    content = (FILES / "nccl-all-reduce.txt").read_text()
    both = "".join(f"{rank}: {line}\n" for line in content.splitlines() for rank in (0, 1))
    with pytest.raises(ResultError, match="measures 1048576 bytes 2 times"):
        read_results(Path("out.txt"), both.encode(), None)


def test_lines_of_sglang_are_runs_with_the_settings_that_they_state() -> None:
    first, second = read("sglang.jsonl")
    assert first.parameters == {
        "rate": None,
        "concurrency": 16,
        "model": "/models/example-8b",
        "api": "sglang",
        "input": "1024",
        "output": "128",
        "tp_size": 2,
        "dp_size": 1,
        "dtype": "auto",
    }
    assert second.parameters["concurrency"] == 32
    found = figures(first)
    assert (found["throughput"], found["requests_per_second"], found["server_version"]) == (512.0, 4.0, "0.5.0")
    assert (found["ttft_p99_seconds"], found["tpot_p50_seconds"], found["e2e_p90_seconds"]) == (0.26, 0.0285, 4.2)


def test_an_early_result_of_sglang_has_no_model_and_the_means_of_its_lengths() -> None:
    (run,) = read("sglang-2024.jsonl")
    parameters = dict(run.parameters)
    assert (
        parameters.pop("dataset") == '{"random_input_len": 1024, "random_output_len": 128, "random_range_ratio": 0.0}'
    )
    assert parameters == {
        "rate": 4.0,
        "concurrency": None,
        "burstiness": 1.0,
        "api": "completions",
        "input": "≈215",
        "output": "≈198",
    }
    assert figures(run)["ttft_p50_seconds"] == 0.085


def test_a_csv_of_genai_perf_is_no_aiperf() -> None:
    content = (
        "Metric,avg,min,max,p99\nTime To First Token (ms),1,1,1,1\n\nMetric,Value\nRequest Throughput (per sec),4\n"
    )
    with pytest.raises(ResultError, match="no known format"):
        read_results(Path("a.csv"), content.encode(), None)


def test_nccl_tests_in_other_units_are_refused() -> None:
    content = (FILES / "nccl-all-reduce.txt").read_text().replace("(us)", "(ms)")
    with pytest.raises(ResultError, match="not in"):
        read_results(Path("out.txt"), content.encode(), None)
