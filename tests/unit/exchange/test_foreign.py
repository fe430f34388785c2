"""Results of foreign programs, read from tests/fixtures/imported."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.exchange.foreign import store
from gpuagent_collector.exchange.foreign.result import ForeignRun, Node, ResultError
from gpuagent_collector.exchange.foreign.store import FORMATS, load, read_results
from tests.support.goldens import assert_golden

FILES = Path(__file__).parents[2] / "fixtures" / "imported"


def read(name: str) -> list[ForeignRun]:
    return list(read_results(FILES / name, load(FILES / name)))


def text_of(name: str) -> str:
    return (FILES / name).read_text()


def document_of(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text_of(name))
    return document


def read_all(content: str | Mapping[str, Any]) -> list[ForeignRun]:
    """Return the runs of a text or a JSON document."""
    text = content if isinstance(content, str) else json.dumps(content)
    return list(read_results(Path("result"), text.encode()))


def read_one(content: str | Mapping[str, Any]) -> ForeignRun:
    (run,) = read_all(content)
    return run


def figures(run: ForeignRun) -> dict[str, Any]:
    assert len({figure.name for figure in run.figures}) == len(run.figures)
    return {figure.name: figure.value for figure in run.figures}


def at(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - as the store holds times


def lines_of(run: ForeignRun) -> Iterator[str]:
    """Describe a run with all that was taken from its file, a fact a line."""
    for fact in ("program", "version", "workload", "reason", "started_at", "ended_at"):
        yield f"{fact}: {getattr(run, fact)}"
    yield from (f"phase {name}: {time}" for name, time in run.phases)
    yield from (f"node {node.hostname}: {', '.join(node.gpus)}" for node in run.nodes)
    yield from (f"parameter {name}: {value!r}" for name, value in run.parameters.items())
    yield from (f"figure {each.name}: {each.value!r} {each.unit} {each.phase}" for each in run.figures)


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.iterdir() if path.suffix != ".md"))
def test_a_file_is_read_as_it_was_reviewed(name: str) -> None:
    runs = read(name)
    assert all(figures(run) for run in runs)
    assert_golden("\n\n".join("\n".join(lines_of(run)) for run in runs), f"imported/{name}.txt")


def test_what_aiperf_saw_of_gpus_and_of_its_end_is_taken_over() -> None:
    document = document_of("aiperf-poisson.json")
    gpus = {str(index): {"gpu_name": "NVIDIA H200", "hostname": "gpu-a"} for index in range(2)}
    document["telemetry_data"]["endpoints"] = {"http://gpu-a:9400/metrics": {"gpus": gpus}}
    run = read_one({**document, "was_cancelled": True})
    assert run.nodes == [Node(hostname="gpu-a", gpus=("NVIDIA H200", "NVIDIA H200"))]
    assert run.reason == "cancelled or incomplete"


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
    document = document_of(name)
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = other
    with pytest.raises(ResultError, match=why):
        read_all(document)


def test_lines_of_results_are_runs_each() -> None:
    one = document_of("vllm-rate4.json")
    content = "\n".join(json.dumps({**one, "request_rate": rate}) for rate in (1.0, 2.0))
    assert [run.parameters["rate"] for run in read_all(content)] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("program", "operation"),
    [("alltoall", "all_to_all"), ("sendrecv", "send_recv"), ("reduce_scatter", "reduce_scatter")],
)
def test_nccl_tests_have_the_names_of_the_workload_collectives(program: str, operation: str) -> None:
    content = text_of("nccl-all-reduce.txt").replace("all_reduce_perf", f"{program}_perf")
    run = read_one(content.replace("library=22807", "library=2708"))
    assert run.parameters["collective"] == operation
    found = figures(run)
    assert {f"{operation}_1048576_bytes_seconds", f"{operation}_bus_bytes_per_second"} <= found.keys()
    assert found["nccl_version"] == "2.7.8"


def test_a_long_line_of_nccl_tests_is_read_at_once() -> None:
    # With a regex that begins at each of the characters, these take hours.
    content = text_of("nccl-all-reduce.txt")
    long = f"{'#' * 1_000_000}\n{content}"
    assert read_all(long) == read("nccl-all-reduce.txt")
    cut = content.partition("# Avg")[0] + "# Avg bus bandwidth : " + "1" * 1_000_000
    with pytest.raises(ResultError, match="average bus bandwidth"):
        read_all(cut)


@pytest.mark.parametrize("place", [("258.8       0", "258.8      17"), ("258.0       0", "258.0      17")])
def test_nccl_tests_with_wrong_values_of_a_size_have_failed_whatever_the_sum_says(place: tuple[str, str]) -> None:
    content = text_of("nccl-all-reduce.txt")
    assert content.count(place[0]) == 1
    changed = content.replace(*place)
    assert read_one(changed).reason == "17 wrong values"
    assert read_one(changed.replace("#wrong", " error")).reason is None


@pytest.mark.parametrize("written", ["-nan", "nan", "inf", "-1.0", "12..5", ""])
def test_a_size_of_nccl_tests_without_a_time_does_not_vanish(written: str) -> None:
    content = text_of("nccl-all-reduce.txt")
    changed = re.sub(r"(?m)194\.5 .*$", written, content) if not written else content.replace("194.5", written)
    with pytest.raises(ResultError):
        read_all(changed)


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
    assert read_one({**document_of("vllm-rate4.json"), "backend": backend}).parameters["api"] == api


def test_aiperf_cannot_have_more_successes_than_requests() -> None:
    document = document_of("aiperf-poisson.json")
    document["completed_request_count"]["avg"] = 29
    with pytest.raises(ResultError, match="request_count is 30, more than the 29 of completed_request_count"):
        read_all(document)


# Name of a file → a number that it states as it writes it.
NUMBERS = {
    "aiperf-poisson.json": "output_token_throughput",
    "vllm-rate4.json": "output_throughput",
    "guidellm-poisson.json": "output_tokens_per_second",
}


@pytest.mark.parametrize("written", ["NaN", "1e400", "-Infinity", "-140", '"140"'])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_figure_that_is_no_number_is_refused_by_its_name(name: str, written: str) -> None:
    content = text_of(name)
    field = NUMBERS[name]
    number = r"-?\d[\d.e+-]*"
    where = {"guidellm-poisson.json": rf'(?s)("{field}".*?"total": \{{.*?"mean": ){number}'}
    where["vllm-rate4.json"] = rf'("{field}": ){number}'
    changed, times = re.subn(where.get(name, rf'(?s)("{field}".*?"avg": ){number}'), rf"\g<1>{written}", content)
    assert times
    with pytest.raises(ResultError, match=f"{field} is .*, not a number from 0 up"):
        read_results(Path(name), changed.encode())


# Name of a file → its format.
KINDS = {
    "aiperf-poisson.json": "aiperf",
    "aiperf-1.3-public.json": "aiperf",
    "vllm-2024.json": "vllm-bench",
    "nccl-tagged.txt": "nccl-tests",
    "guidellm-poisson.json": "guidellm",
    "vllm-rate4.json": "vllm-bench",
    "nccl-all-reduce.txt": "nccl-tests",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_each_file_is_recognised_by_one_format_alone(name: str, kind: str) -> None:
    content = text_of(name)
    document = json.loads(content) if name.endswith(".json") else content
    assert [known for known, (fits, _) in FORMATS.items() if fits(document)] == [kind]


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_is_cut_off_anywhere_is_refused_or_whole(name: str, tmp_path: Path) -> None:
    whole = (FILES / name).read_bytes()
    expected = read(name)
    for length in range(1, len(whole), max(1, len(whole) // 60)):
        try:
            runs = list(read_results(tmp_path / name, whole[:length]))
        except ResultError as error:
            assert "\n" not in str(error)
        else:
            assert runs == expected, f"the first {length} bytes were taken for a whole file"


def _damaged(change: Callable[[dict[str, Any]], Any]) -> bytes:
    document = document_of("vllm-rate4.json")
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
        read_results(Path("f.json"), HOSTILE[name])
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


def test_figures_are_in_the_unit_that_is_written_or_refused() -> None:
    document = document_of("aiperf-1.3-public.json")
    expected = figures(read("aiperf-1.3-public.json")[0])
    for unit, factor in (("s", 1e-3), ("us", 1e3), ("ns", 1e6)):
        latency = {key: value * factor for key, value in document["time_to_first_token"].items() if key != "unit"}
        other = {**document, "time_to_first_token": {**latency, "unit": unit}}
        assert figures(read_one(other))["ttft_p99_seconds"] == pytest.approx(expected["ttft_p99_seconds"])
    for metric in ("time_to_first_token", "output_token_throughput", "input_sequence_length", "request_count"):
        other = {**document, metric: {**document[metric], "unit": "fortnights"}}
        with pytest.raises(ResultError, match=f"the unit of {metric} is 'fortnights'"):
            read_all(other)
    del document["time_to_first_token"]["unit"]
    with pytest.raises(ResultError, match="time_to_first_token is ''"):
        read_all(document)


IMPOSSIBLE = [
    ("aiperf-1.3-public.json", ("time_to_first_token",), {"p50": 70.0}),
    ("aiperf-1.3-public.json", ("request_latency",), {"avg": 1e6}),
    ("aiperf-1.3-public.json", ("inter_token_latency",), {"min": 7.4}),
    ("aiperf-1.3-public.json", ("output_sequence_length",), {"max": 10.0}),
    ("guidellm-poisson.json", ("benchmarks", "0", "metrics", "request_latency", "successful"), {"max": 0.001}),
    ("vllm-rate4.json", (), {"p99_ttft_ms": 0.5}),
]


@pytest.mark.parametrize(("name", "place", "change"), IMPOSSIBLE)
def test_contradicting_statistics_are_refused(name: str, place: tuple[str, ...], change: dict[str, float]) -> None:
    document = document_of(name)
    found: Any = document
    for key in place:
        found = found[int(key)] if key.isdigit() else found[key]
    assert found.keys() >= change.keys()
    found.update(change)
    with pytest.raises(ResultError, match="more than its"):
        read_all(document)


@pytest.mark.parametrize(
    "change", [{"best_of": 4}, {"use_beam_search": True}, {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1}]
)
def test_settings_of_vllm_are_conditions(change: dict[str, Any]) -> None:
    assert change.items() <= read_one({**document_of("vllm-2024.json"), **change}).parameters.items()


def test_data_and_loads_of_guidellm_without_a_parameter_are_conditions() -> None:
    document = document_of("guidellm-poisson.json")
    document["config"]["spec"]["data"] = [{"kind": "huggingface", "source": "example/chats"}]
    strategy = document["benchmarks"][0]["config"]["strategy"]
    strategy |= {"type_": "throughput", "rate": None, "max_concurrency": 512}
    run = read_one(document)
    found = figures(run)
    assert run.parameters["input"] == f"≈{found['input_tokens_mean']:.6g}"
    assert (run.parameters["profile"], run.parameters["load"]) == ("throughput", '{"max_concurrency": 512}')
    assert json.loads(run.parameters["dataset"])["data"] == document["config"]["spec"]["data"]


OPEN_MPI = ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-node-7-4117@1,0]<stdout>: "]


@pytest.mark.parametrize("tag", [*OPEN_MPI, "Thu Nov 26 10:41:40 2026[1,0]<stdout>:", "0: ", "12: ", "[0] "])
def test_tags_of_launchers_are_stripped_from_nccl_tests(tag: str) -> None:
    content = text_of("nccl-all-reduce.txt")
    tagged = "".join(f"{tag}{line}\n" for line in content.splitlines())
    noise = f"{tag}node-7:22:22 [0] NCCL INFO Using network Socket\nWarning: Permanently added 'node-7'\n"
    assert read_one(noise + tagged) == read("nccl-all-reduce.txt")[0]


NCCL, AIPERF = text_of("nccl-all-reduce.txt"), document_of("aiperf-poisson.json")
EARLY = {"benchmarks": [{"type_": "generative_benchmark", "args": {}, "run_stats": {}, "metrics": {}}]}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (NCCL.replace("(us)", "(ms)"), "not in"),
        (NCCL + NCCL, "measures 1048576 bytes 2 times"),
        # Two processes that each measured.
        ("".join(f"{rank}: {line}\n" for line in NCCL.splitlines() for rank in (0, 1)), "1048576 bytes 2 times"),
        (json.dumps(EARLY), "version None; version 2"),
        (json.dumps({**AIPERF, "input_config": {"loadgen": {"concurrency": 4}}}), "aiperf 0.10 and later"),
        (json.dumps({name: AIPERF[name] for name in AIPERF if name != "schema_version"}), "no known format"),
    ],
)
def test_what_cannot_be_one_result_is_refused(content: str, why: str) -> None:
    with pytest.raises(ResultError, match=why):
        read_all(content)


NO_REQUESTS = {"request_count": {"unit": "requests", "avg": 0}}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vllm-rate4.json", {"completed": 0, "failed": 240, "request_throughput": 0.0, "output_throughput": 0.0}),
        ("aiperf-poisson.json", NO_REQUESTS),
    ],
)
def test_a_load_that_no_request_survived_has_failed_without_figures(name: str, change: dict[str, Any]) -> None:
    run = read_one(document_of(name) | change)
    assert run.reason == "no request succeeded"
    assert not {"throughput", "ttft_p50_seconds", "request_throughput"} & figures(run).keys()
    if name != "vllm-rate4.json":
        assert figures(run).keys() <= {"request_errors", "model"}
