"""How a trace is taken after the measured steps, and what is reported of it."""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from gpuagent.runs.events import MAX_LINE_BYTES, EventTailer
from gpuagent_collector.store import Store
from gpuagent_workloads.errors import NonFiniteError
from gpuagent_workloads.measuring.setup import Member, run_ranks
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.loop import train
from gpuagent_workloads.training.trace import report
from gpuagent_workloads.training.trace.figures import MAX_NAME_CHARACTERS, Activity, gather, join_cycles, wait_nano
from gpuagent_workloads.training.trace.report import SHORT, TraceError, take
from tests.support.stores import make_store
from tests.unit.workloads.runs import of_kind, phases_of, read_events, results_of

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
CONFIG = TrainingConfig(steps=4, warmup=2, batch_size=4)
FIXTURE = Path(__file__).parents[2] / "fixtures" / "traces" / "overlapping_all_reduce.json"
DOCS = Path(__file__).parents[3] / "docs"


class Steps:
    """A training step that multiplies matrices and counts."""

    def __init__(self) -> None:
        self.taken = 0
        self._weights = torch.ones(8, 8, requires_grad=True)

    def __call__(self) -> torch.Tensor:
        self.taken += 1
        loss = (self._weights @ self._weights).sum()
        loss.backward()
        return loss


class RecordedProfile:
    """In the place of torch's profiler after a trace on a GPU, which the machine may lack."""

    def export_chrome_trace(self, path: str) -> None:
        opener = gzip.open if path.endswith(".gz") else open
        with FIXTURE.open("rb") as recorded, opener(path, "wb") as file:
            shutil.copyfileobj(recorded, file)

    def key_averages(self) -> list[Any]:
        return []


def take_recorded(_step: object, _plan: object, _device: object, export: Callable[[Any], None]) -> RecordedProfile:
    profiler = RecordedProfile()
    export(profiler)
    return profiler


class BrokenProfile:
    """A profiler whose method of the given name fails when it is called for the given time."""

    def __init__(self, method: str, on_call: int = 1) -> None:
        self._method, self._on_call = method, on_call

    def __call__(self, **_options: Any) -> "BrokenProfile":
        return self

    def __getattr__(self, method: str) -> Callable[[], None]:
        def call() -> None:
            self._on_call -= method == self._method
            if self._on_call == 0:
                raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\nin line 2")

        return call


def report_recorded(tmp_path: Path, config: TrainingConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Report the recorded trace of a GPU as that of a run with 1 ms a step."""
    monkeypatch.setattr(report, "take", take_recorded)
    with Reporter(tmp_path / "events.0.0.jsonl") as reporter:
        report.report_trace(Steps(), config, 1e-3, GPU, reporter)


def test_a_profile_on_a_cpu_reports_its_operators_and_keeps_the_trace(tmp_path: Path) -> None:
    step = Steps()
    path = tmp_path / "events.0.0.jsonl"
    with Reporter(path) as reporter:
        train(step, replace(CONFIG, profile=True), 10, CPU, reporter)
    events = read_events(path)
    assert step.taken == 2 + 4 + 7
    assert results_of(events)["traced_steps"] == 5
    (product,) = [event for event in of_kind(events, "op") if event["name"] == "aten::mm"]
    # One forward and two backward.
    assert (product["kind"], product["calls"], product["steps"]) == ("operator", 3 * 5, 5)
    assert 0 < product["cpu_self_seconds"] <= product["cpu_seconds"]
    assert "gpu_seconds" not in product
    kept = Path(results_of(events)["trace_file"])
    assert kept.parent == tmp_path
    assert re.fullmatch(r"rank0\.\d{13}\.pt\.trace\.json\.gz", kept.name)
    with gzip.open(kept) as file:
        names = [event["name"] for event in json.load(file)["traceEvents"]]
    assert sum(name.startswith("ProfilerStep#") for name in names) == 5
    # Its steps are not among those that are measured.
    assert results_of(events)["steps"] == 4
    assert len(of_kind(events, "step")) == 2 + 4
    assert phases_of(events) == ["warmup", "measure", "teardown", "end"]
    (teardown,) = [event["t"] for event in of_kind(events, "phase") if event["name"] == "teardown"]
    assert all(event["t"] >= teardown for event in of_kind(events, "op"))


def test_without_a_run_directory_a_new_folder_has_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reporter = Reporter(None, rank=3)
    report.report_trace(Steps(), replace(CONFIG, profile=True), 1.0, CPU, reporter)
    (folder,) = tmp_path.iterdir()
    (file,) = folder.iterdir()
    assert folder.name.startswith("trace-")
    assert file.name.startswith("rank3.")
    assert {result.name: result.value for result in reporter.results}["trace_file"] == str(file)


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, trace=False)])
def test_nothing_is_traced_on_a_cpu_unless_it_is_asked_for(config: TrainingConfig) -> None:
    step, reporter = Steps(), Reporter(None)
    report.report_trace(step, config, 1.0, CPU, reporter)
    assert (step.taken, reporter.results) == (0, [])


def test_every_run_on_a_gpu_is_traced_unless_it_is_told_not_to() -> None:
    assert report.choose_plan(CONFIG, GPU) == SHORT
    assert report.choose_plan(replace(CONFIG, trace=False), GPU) is None
    profiled = report.choose_plan(replace(CONFIG, trace=False, profile=True), GPU)
    assert profiled
    assert (profiled.cycle, profiled.repeat, profiled.operators) == (7, 1, True)


def test_figures_and_kernels_of_a_gpu_trace_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_recorded(tmp_path, CONFIG, monkeypatch)
    events = read_events(tmp_path / "events.0.0.jsonl")
    results = results_of(events)
    assert results["traced_steps"] == 3
    assert results["gpu_busy_seconds_per_step"] == pytest.approx(115e-6 / 3)
    assert results["gpu_gap_seconds_per_step"] == pytest.approx(1e-3 - 115e-6 / 3)
    assert results["gpu_busy_share"] == pytest.approx(100 * 115e-6 / 3 / 1e-3)
    assert results["exposed_communication_share"] == pytest.approx(25)
    assert "straggler_wait_share" not in results
    assert "trace_file" not in results
    ops = [(event["kind"], event["calls"]) for event in of_kind(events, "op")]
    assert ops == [("kernel", 1), ("kernel", 1), ("kernel", 2), ("memcpy", 1), ("memset", 1)]
    assert [path.name for path in tmp_path.iterdir()] == ["events.0.0.jsonl"]


def test_a_profile_of_a_gpu_keeps_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_recorded(tmp_path, replace(CONFIG, profile=True), monkeypatch)
    results = results_of(read_events(tmp_path / "events.0.0.jsonl"))
    assert gzip.decompress(Path(results["trace_file"]).read_bytes()) == FIXTURE.read_bytes()


def test_the_longest_name_fits_into_a_line_of_events(tmp_path: Path) -> None:
    with Reporter(tmp_path / "events.0.0.jsonl") as reporter:
        reporter.op(kind="kernel", name="\U0001f47e" * MAX_NAME_CHARACTERS, calls=1, steps=1, gpu_seconds=1.0)
    assert max(map(len, (tmp_path / "events.0.0.jsonl").read_bytes().splitlines())) < MAX_LINE_BYTES


def test_a_time_that_is_not_finite_is_refused() -> None:
    with pytest.raises(NonFiniteError):
        Reporter(None).op(kind="kernel", name="gemm", calls=1, steps=1, gpu_seconds=float("nan"))


def test_there_is_no_negative_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "take", take_recorded)
    reporter = Reporter(None)
    report.report_trace(Steps(), CONFIG, 1e-6, GPU, reporter)
    results = {result.name: result.value for result in reporter.results}
    assert (results["gpu_gap_seconds_per_step"], results["gpu_busy_share"]) == (0, 100)


@pytest.mark.parametrize(
    "broken", [BrokenProfile("start"), BrokenProfile("step"), BrokenProfile("step", 7), BrokenProfile("stop")]
)
def test_a_profiler_that_fails_costs_the_trace_only(broken: BrokenProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "profile", broken)
    step, reporter = Steps(), Reporter(None)
    report.report_trace(step, replace(CONFIG, profile=True), 1.0, CPU, reporter)
    # Other ranks wait for the steps of this one.
    assert step.taken == 7
    assert {result.name: result.value for result in reporter.results} == {
        "trace_failed": "RuntimeError: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES in line 2"
    }


def test_a_trace_that_cannot_be_kept_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "choose_folder", lambda _reporter: tmp_path / "missing")
    with Reporter(tmp_path / "events.0.0.jsonl") as reporter:
        train(Steps(), replace(CONFIG, profile=True), 10, CPU, reporter)
    results = results_of(read_events(tmp_path / "events.0.0.jsonl"))
    assert "No such file" in results["trace_failed"]
    assert results["throughput"] > 0


def test_a_gpu_trace_that_holds_nothing_of_the_gpu_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = replace(SHORT, operators=True)
    monkeypatch.setattr(report, "take", lambda step, _plan, _device, export: take(step, on_cpu, CPU, export))
    with pytest.raises(TraceError, match="CUPTI"):
        report.trace_steps(Steps(), SHORT, GPU, Reporter(None))


def test_a_schedule_gives_a_trace_for_each_cycle_as_tensorboard_and_perfetto_read_them(tmp_path: Path) -> None:
    step = Steps()
    schedule = replace(CONFIG, profile=True, profile_wait=0, profile_warmup=1, profile_active=2, profile_repeat=2)
    with Reporter(tmp_path / "events.0.0.jsonl") as reporter:
        report.report_trace(step, schedule, 1.0, CPU, reporter)
    events = read_events(tmp_path / "events.0.0.jsonl")
    assert step.taken == 2 * (1 + 2)
    assert results_of(events)["traced_steps"] == 4
    (product,) = [event for event in of_kind(events, "op") if event["name"] == "aten::mm"]
    assert (product["calls"], product["steps"]) == (3 * 4, 4)
    files = sorted(tmp_path.glob("*.gz"))
    # The pattern of torch_tb_profiler: a worker, and a span's time.
    assert all(re.fullmatch(r"(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?", file.name) for file in files)
    assert len(files) == 2
    assert results_of(events)["trace_file"] == str(files[-1])
    for file in files:
        trace = json.loads(gzip.decompress(file.read_bytes()))
        slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        assert sum(event["name"].startswith("ProfilerStep#") for event in slices) == 2
        assert all({"name", "pid", "tid", "ts", "dur"} <= event.keys() for event in slices)


def test_cycles_are_joined_without_the_steps_between_them() -> None:
    first = [Activity(kind="kernel", name="a", begin_nano=10, end_nano=30)]
    second = [Activity(kind="kernel", name="b", begin_nano=500, end_nano=510)]
    second += [Activity(kind="memset", name="c", begin_nano=505, end_nano=525)]
    joined = join_cycles([first, second])
    assert [activity.interval for activity in joined] == [(0, 20), (20, 30), (25, 45)]


def test_a_step_that_fails_fails_the_run_and_the_profiler_ends() -> None:
    def step() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        report.report_trace(step, replace(CONFIG, profile=True), 1.0, CPU, Reporter(None))
    assert not torch._C._autograd._profiler_enabled()


def write_wait(folder: Path, member: Member, _reporter: Reporter) -> None:
    """Write how long this rank waited for the other in a collective."""
    of_all = gather([("ncclDevKernel_AllReduce", (100, 70)[member.rank])])
    (folder / str(member.rank)).write_text(str(wait_nano(of_all, member.rank)))


@pytest.mark.usefixtures("forked_ranks")
def test_ranks_exchange_their_collectives(tmp_path: Path) -> None:
    run_ranks("a test", 2, CPU, partial(write_wait, tmp_path), Reporter(None))
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["30", "0"]


def test_the_documented_query_finds_the_kernels_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_recorded(tmp_path, CONFIG, monkeypatch)
    queries = re.findall(r"^```sql\n(.*?)^```", (DOCS / "workloads.md").read_text(), re.DOTALL | re.MULTILINE)
    (query,) = [query for query in queries if "op_times" in query]
    rows = [parsed.row for parsed in EventTailer("mnist-01", tmp_path).read_new() if parsed.table == "op_times"]
    insert = "INSERT INTO op_times BY NAME SELECT make_timestamp_ns($time)::TIMESTAMP AS time, " + ", ".join(
        f"${column} AS {column}" for column in rows[0] if column != "time"
    )
    with Store.open(str(make_store(tmp_path))) as store, store.connect() as connection:
        for row in rows:
            connection.execute(insert, row)
        found = connection.execute(query).fetchall()
    assert [(environment, calls) for environment, _, calls, _ in found] == [
        ("bare", pytest.approx(1 / 3)),
        ("bare", pytest.approx(1 / 3)),
        ("bare", pytest.approx(2 / 3)),
    ]
    assert found[0][3] == pytest.approx(60e-6 / 3)
