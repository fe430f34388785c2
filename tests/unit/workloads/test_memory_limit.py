import ctypes
import json
import multiprocessing
import signal
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.memory_limit import Config, Layers, measure
from gpuagent_workloads.suite.memory_limit import trial as trial_process
from gpuagent_workloads.suite.memory_limit.measure import largest_that_fits
from gpuagent_workloads.suite.memory_limit.trial import (
    Outcome,
    Shape,
    Stage,
    StageClock,
    Trial,
    is_out_of_memory,
    make_step,
    outcome_of,
    run_in_fresh_process,
    run_trial,
)
from tests.support.servers import until
from tests.unit.workloads.runs import (
    assert_gone,
    measuring,
    of_kind,
    phases_of,
    reported,
    results_of,
    run_config,
    run_reporting,
)

pytestmark = pytest.mark.slow

MIB = 1 << 20
# With few layers, and a guess close to them, the search needs few trials, each of which is a process.
LIMIT_MIB = 10
CPU = measure.Devices(names=["cpu"], uuids=[], facts=[])

_TRIAL_MODULE = "gpuagent_workloads.suite.memory_limit.trial"

# An activation of it has 1 MiB.
SHAPE = Shape(batch_size=4, channels=16, side=64)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def run_in_fork(trial: Trial) -> Outcome:
    """Run a trial in a fork of a process with torch: to import it takes longer than the trial."""
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send_outcome, args=(trial, sender))
    process.start()
    sender.close()
    outcome: Outcome = receiver.recv()
    process.join()
    return outcome


def send_outcome(trial: Trial, sender: Connection) -> None:
    # As the variable of processes of their own does, so that a limit counts the memory in use.
    m_mmap_threshold = -3
    assert ctypes.CDLL(None).mallopt(m_mmap_threshold, 65536)
    torch.set_num_threads(1)
    sender.send(run_trial(trial))


def cpu_trial(*stages: tuple[int, int], limit_bytes: int | None) -> Trial:
    return Trial(
        stages=tuple(Stage(device="cpu", conv=conv, fc=fc) for conv, fc in stages),
        shape=SHAPE,
        warmup=1,
        steps=1,
        limit_bytes=limit_bytes,
    )


def test_the_frontier_is_within_the_limit_and_trials_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "look", lambda _device: CPU)
    search = measure.largest_that_fits
    monkeypatch.setattr(measure, "largest_that_fits", lambda fits, _guess: search(fits, 4))
    monkeypatch.setattr(measure.Search.__init__, "__defaults__", (run_in_fork,))
    shape = ("--batch-size", "4", "--channels", "16", "--side", "64")
    few = ("--ratios", "1:1", "--warmup", "1", "--steps", "1", "--limit-bytes", str(LIMIT_MIB * MIB))
    events = run_reporting(tmp_path, "memory-limit", "--device", "cpu", *shape, *few)
    assert phases_of(events) == ["setup", "measure", "teardown", "end"]
    results = results_of(events)
    conv, fc = results["frontier_conv1_fc1_conv_layers"], results["frontier_conv1_fc1_fc_layers"]
    # Each layer keeps an activation.
    assert 1 <= conv + fc <= LIMIT_MIB
    assert conv - fc in (0, 1)
    assert results["frontier_conv1_fc1_step_seconds"] > 0
    assert results["frontier_conv1_fc1_free_bytes"] > 0
    assert "assumption" in results["layers"]
    tried: dict[int, dict[str, float]] = {}
    for event in of_kind(events, "metric"):
        tried.setdefault(event["step"], {})[event["name"]] = event["value"]
    assert len(tried) == results["trials"]
    outcomes = [
        (trial["trial_conv_layers"] + trial["trial_fc_layers"], bool(trial["trial_fits"])) for trial in tried.values()
    ]
    # The last trial is the reported one, with more steps than the search's: one of more layers did not fit.
    assert outcomes[-1] == (conv + fc, True)
    assert (conv + fc + 1, False) in outcomes


def test_a_stack_may_be_split_into_stages() -> None:
    outcome = run_in_fork(cpu_trial((2, 0), (1, 2), limit_bytes=None))
    assert (outcome.fits, len(outcome.free_bytes)) == (True, 1)
    assert outcome.step_seconds is not None
    first, last = outcome.stage_seconds
    assert min(first, last) > 0
    assert first + last < outcome.step_seconds


def test_stages_compute_the_gradients_of_the_whole_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    build, gradients = trial_process._build_stage, []
    built: list[torch.nn.Module] = []

    def keep(module: torch.nn.Module) -> None:
        built.append(module)

    def build_known(stage: Stage, shape: Shape) -> torch.nn.Sequential:
        stack = build(stage, shape)
        for weights in stack.parameters():
            torch.nn.init.constant_(weights, 0.1)
        torch.manual_seed(1)
        return stack

    monkeypatch.setattr(trial_process, "_build_stage", build_known)
    # Kept past the step, which drops their gradients.
    monkeypatch.setattr(torch.nn.Sequential, "zero_grad", keep)
    for cut in (
        [Stage(device="cpu", conv=2, fc=1)],
        [Stage(device="cpu", conv=1, fc=0), Stage(device="cpu", conv=1, fc=1)],
    ):
        built.clear()
        make_step(cut, Shape(batch_size=1, channels=2, side=8, kernel=5), StageClock())()
        gradients.append([weights.grad for module in built for weights in module.parameters()])
    whole, divided = gradients
    assert len(whole) == 6
    assert all(torch.equal(*pair) for pair in zip(whole, divided, strict=True))  # type: ignore[arg-type]


def test_stated_points_are_timed_without_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "look", lambda _device: CPU)
    shape = ("--batch-size", "4", "--channels", "16", "--side", "64", "--kernel", "1", "--warmup", "0", "--steps", "1")
    limit = ("--limit-bytes", str(LIMIT_MIB * MIB))
    events = run_reporting(tmp_path, "memory-limit", "--device", "cpu", *shape, *limit, "--points", "1:2,30:30")
    results = results_of(events)
    assert (results["point_conv1_fc2_fits"], results["point_conv30_fc30_fits"], results["trials"]) == (1, 0, 2)
    assert results["point_conv1_fc2_step_seconds"] > 0
    assert "point_conv30_fc30_step_seconds" not in results
    assert not any(name.startswith("frontier") for name in results)
    assert results["conv_layer"] == "Conv2d(16, 16, 1, padding 0): (4, 16, 64, 64) to (4, 16, 64, 64), 272 parameters"
    assert results["fc_layer"] == "Linear(64, 64): (4, 16, 64, 64) to (4, 16, 64, 64), 4,160 parameters"


def test_a_stated_division_reports_the_layers_and_the_time_of_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = measure.Devices(names=["cuda:0", "cuda:1", "cuda:2"], uuids=[], facts=[])
    tried: list[Trial] = []

    def run(trial: Trial) -> Outcome:
        tried.append(trial)
        return Outcome(fits=True, step_seconds=0.3, stage_seconds=[0.1, 0.15], free_bytes=[7, 8])

    monkeypatch.setattr(measure, "look", lambda _device: gpus)
    monkeypatch.setattr(measure.Search.__init__, "__defaults__", (run,))
    reporter = Reporter(None)
    measure.find_frontier(Config(device="cuda", split=2, points="84:0+54:62"), reporter)
    assert [trial.stages for trial in tried] == [
        (Stage(device="cuda:0", conv=84, fc=0), Stage(device="cuda:1", conv=54, fc=62))
    ]
    results = reported(reporter)
    name = "point_conv84_fc0_conv54_fc62"
    assert (results[f"{name}_conv_layers"], results[f"{name}_fc_layers"]) == (138, 62)
    assert (results[f"{name}_gpu1_fc_layers"], results[f"{name}_gpu1_free_bytes"]) == (62, 8)
    assert (results[f"{name}_gpu0_step_seconds"], results[f"{name}_gpu1_step_seconds"]) == (0.1, 0.15)


def test_a_trial_that_fails_for_another_reason_than_memory_fails_the_run() -> None:
    stage = Stage(device="cuda:999", conv=1, fc=0)
    with pytest.raises(WorkloadError, match="with exit code 1: "):
        run_in_fresh_process(Trial(stages=(stage,), shape=SHAPE, warmup=1, steps=1, limit_bytes=None))


def test_no_trial_survives_a_killed_search() -> None:
    small = ("--limit-bytes", str(64 * MIB), "--batch-size", "1", "--channels", "2", "--side", "8")
    with measuring("memory-limit", "--device", "cpu", *small) as process:
        children = psutil.Process(process.pid).children
        trial = until(
            lambda: next((child for child in children() if _TRIAL_MODULE in child.cmdline()), None), "a trial"
        )
        process.kill()
        process.communicate()
    assert_gone([trial])


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"ratios": "1"}, "--ratios needs"),
        ({"ratios": "0:0"}, "--ratios needs"),
        ({"ratios": ""}, "--ratios needs"),
        ({"ratios": "1:0+0:1"}, "--ratios has parts"),
        ({"device": "cpu", "split": 2}, "a CPU has one memory"),
        ({"split": 2}, "--split 2 needs --points"),
        ({"points": "84:0+54:62"}, "--points names 2 GPUs, and --split 1"),
        ({"limit_bytes": 5}, "--limit-bytes must be"),
        ({"kernel": 2}, "--kernel must be odd"),
        ({"points": "61"}, "--points needs"),
        ({"points": "1:1,"}, "--points needs"),
        ({"points": "0:0+1:1"}, "--points needs"),
    ],
)
def test_parameters_that_make_no_sense_are_misuse(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(MisuseError, match=complaint):
        Config(**values)  # type: ignore[arg-type]


def test_a_cpu_without_a_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "look", lambda _device: CPU)
    with pytest.raises(MisuseError, match="give --limit-bytes"):
        run_config("memory-limit", tmp_path, device="cpu")


def test_ratios_are_read_in_their_order_and_grow_layer_by_layer() -> None:
    assert Config(ratios="1:0, 2:3").directions == [(Layers(conv=1, fc=0),), (Layers(conv=2, fc=3),)]
    counts = [Layers(conv=1, fc=1).scaled(count) for count in (1, 2, 123)]
    assert counts == [Layers(conv=1, fc=0), Layers(conv=1, fc=1), Layers(conv=62, fc=61)]
    assert Layers(conv=0, fc=1).scaled(5) == Layers(conv=0, fc=5)


@given(conv=st.integers(0, 9), fc=st.integers(0, 9), count=st.integers(1, 500))
def test_one_layer_more_never_takes_one_away(conv: int, fc: int, count: int) -> None:
    if conv + fc:
        ratio = Layers(conv=conv, fc=fc)
        fewer, more = ratio.scaled(count), ratio.scaled(count + 1)
        assert fewer.count == count
        assert (more.conv - fewer.conv, more.fc - fewer.fc) in ((0, 1), (1, 0))


@given(limit=st.integers(0, 5000), guess=st.integers(0, 5000))
def test_the_largest_that_fits_is_found_from_any_guess_in_few_trials(limit: int, guess: int) -> None:
    tried: list[int] = []

    def fits(count: int) -> bool:
        tried.append(count)
        return count <= limit

    assert largest_that_fits(fits, guess) == limit
    assert min(tried) >= 1
    assert len(tried) <= 30


def test_a_good_guess_saves_trials() -> None:
    tried: list[int] = []
    largest_that_fits(lambda count: not tried.append(count) and count <= 2700, 2800)  # type: ignore[func-returns-value]
    assert len(tried) <= 10


def point_of(room: int, room_when_timed: int) -> Layers:
    """Search on a device with room for so many layers, and for another number in the timed trials."""

    def run(trial: Trial) -> Outcome:
        fits = sum(stage.conv for stage in trial.stages) <= (room_when_timed if trial.warmup > 1 else room)
        return Outcome(fits=fits, step_seconds=0.5, free_bytes=[10**9])

    search = measure.Search(Config(device="cpu", limit_bytes=10**9), ["cpu"], Reporter(None), run)
    return search.report_point(Layers(conv=1, fc=0))


@pytest.mark.parametrize("room_when_timed", [30, 28])
def test_a_point_that_no_longer_fits_when_it_is_timed_is_moved_back(room_when_timed: int) -> None:
    assert point_of(30, room_when_timed).conv == room_when_timed


def test_a_device_without_room_for_one_layer_fails_the_run() -> None:
    with pytest.raises(WorkloadError, match="one layer fits"):
        point_of(0, 0)


@given(st.builds(Layers, conv=st.integers(0, 100), fc=st.integers(0, 100)), st.none() | st.integers(1))
def test_a_trial_survives_its_way_to_the_process(layers: Layers, limit_bytes: int | None) -> None:
    trial = cpu_trial((layers.conv, layers.fc), (0, 1), limit_bytes=limit_bytes)
    assert Trial.from_json(json.dumps(asdict(trial))) == trial


@pytest.mark.parametrize(
    ("exit_code", "errors"), [(-signal.SIGKILL, ""), (-signal.SIGABRT, "terminate called: std::bad_alloc")]
)
def test_a_trial_that_dies_for_want_of_memory_does_not_fit(exit_code: int, errors: str) -> None:
    assert outcome_of(exit_code, "", errors) == Outcome(fits=False)


@pytest.mark.parametrize("exit_code", [-signal.SIGSEGV, -signal.SIGABRT, 1])
def test_a_trial_that_dies_otherwise_is_an_error(exit_code: int) -> None:
    with pytest.raises(WorkloadError, match=r"exit code .*: boom"):
        outcome_of(exit_code, "", "Traceback\nboom\n")


@pytest.mark.parametrize(
    ("error", "tells"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 5 bytes."), True),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_says_that_memory_is_short_is_told_from_what_does_not(error: Exception, tells: bool) -> None:
    assert is_out_of_memory(error) is tells
