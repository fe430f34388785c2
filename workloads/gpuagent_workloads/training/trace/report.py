"""The report of the GPU's work in a training step, from a trace after the measured steps."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.trace.figures import (
    Activity,
    Figures,
    Operation,
    collectives,
    compute_figures,
    device_operations,
    gather,
    join_cycles,
    operators,
    read_activities,
    span_nano,
    wait_nano,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of a trace, and its content."""

    # Steps without the profiler.
    wait: int
    # Steps with the profiler, which costs more at first, that are not kept.
    warmup: int
    # Steps that are kept.
    steps: int
    # Trace what the host does, too. It slows the host, and the GPU may have to wait for it.
    operators: bool
    # How often all this is done.
    repeat: int = 1

    @property
    def cycle(self) -> int:
        """The steps to take for one trace."""
        return self.wait + self.warmup + self.steps


# The plan of every run on a GPU. Without the host's side a launch costs little more than without profiler.
SHORT = Plan(wait=0, warmup=1, steps=3, operators=False)


class TraceError(Exception):
    """The reason why there is no trace. The run continues without it."""


def take(step: Callable[[], object], plan: Plan, device: torch.device, export: Callable[[profile], None]) -> profile:
    """Take the plan's steps, and return the profiler, which has the operators of all cycles.

    `export` is called after each cycle, while the profiler has its trace. All steps are taken even when the profiler
    fails: other ranks wait in their collectives for those of this one. Raises TraceError: the profiler failed.
    """
    activities = ((ProfilerActivity.CPU, plan.operators), (ProfilerActivity.CUDA, device.type == "cuda"))
    with only_the_trace_fails():
        profiler = profile(
            activities=[activity for activity, traced in activities if traced],
            schedule=schedule(wait=plan.wait, warmup=plan.warmup, active=plan.steps, repeat=plan.repeat),
            on_trace_ready=export,
            # Otherwise the operators are those of the last cycle alone.
            acc_events=True,
        )
    failures: list[TraceError] = []
    _attempt(profiler.start, failures)
    try:
        for number in range(1, plan.repeat * plan.cycle + 1):
            step()
            # A trace excludes launches before its first step, and includes all launches of the last.
            if device.type == "cuda" and number % plan.cycle in (plan.wait + plan.warmup, 0):
                torch.cuda.synchronize(device)
            if not failures:
                _attempt(profiler.step, failures)
    finally:
        _attempt(profiler.stop, failures)
    if failures:
        raise failures[0]
    return profiler


@contextmanager
def only_the_trace_fails() -> Iterator[None]:
    """Turn every error of the profiler into a TraceError: of its libraries, permissions or disk space."""
    try:
        yield
    except TraceError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise TraceError(f"{type(error).__name__}: {text}"[:500]) from error


def _attempt(action: Callable[[], None], failures: list[TraceError]) -> None:
    try:
        with only_the_trace_fails():
            action()
    except TraceError as error:
        failures.append(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The content of a trace."""

    # None: no GPU was traced.
    figures: Figures | None
    activities: Sequence[Activity]
    operations: Sequence[Operation]
    # Where it was kept, a file for each cycle; empty: nowhere.
    files: Sequence[Path]


def report_trace(
    step: Callable[[], object],
    config: TrainingConfig,
    seconds_per_step: float,
    device: torch.device,
    reporter: Reporter,
) -> None:
    """Trace some more steps, and report the work of the GPU and, with --profile, of the operators in them.

    A trace that fails is reported as `trace_failed`, and the run continues. With several ranks all must call this.

    Args:
        seconds_per_step: of the measured steps, which ran without profiler. The idle time of the GPU is their time
            beyond the busy time of the traced steps, since a profiler slows launches, but not the launched work.
    """
    plan = choose_plan(config, device)
    if plan is None:
        return
    trace = None
    try:
        trace = trace_steps(step, plan, device, reporter)
    except TraceError as error:
        reporter.result("trace_failed", str(error))
    of_all_ranks = gather(collectives(trace.activities) if trace else None)
    if trace is None:
        return
    _report(trace, plan, seconds_per_step, reporter)
    waited_nano = wait_nano(of_all_ranks, reporter.rank)
    if waited_nano is not None:
        reporter.result("straggler_wait_share", 100 * waited_nano / span_nano(trace.activities), unit="%")


def choose_plan(config: TrainingConfig, device: torch.device) -> Plan | None:
    """Return the plan of the trace; None: there is none."""
    if config.profile:
        return Plan(
            wait=config.profile_wait,
            warmup=config.profile_warmup,
            steps=config.profile_active,
            operators=True,
            repeat=config.profile_repeat,
        )
    return SHORT if config.trace and device.type == "cuda" else None


def trace_steps(step: Callable[[], object], plan: Plan, device: torch.device, reporter: Reporter) -> Trace:
    """Take the plan's steps, and return their trace.

    Raises TraceError: it cannot be taken, exported or read, or lacks the GPU.
    """
    on_gpu = device.type == "cuda"
    with tempfile.TemporaryDirectory(prefix="gpuagent-trace-") as scratch:
        files: list[Path] = []

        def export(profiler: profile) -> None:
            folder, suffix = (choose_folder(reporter), ".gz") if plan.operators else (Path(scratch), "")
            # TensorBoard's plugin and Perfetto know traces by this name: a worker, and the time of a cycle in ms.
            files.append(folder / f"rank{reporter.rank}.{time.time_ns() // 1_000_000}.pt.trace.json{suffix}")
            profiler.export_chrome_trace(str(files[-1]))

        profiler = take(step, plan, device, export)
        with only_the_trace_fails():
            cycles = [read_activities(file) for file in files] if on_gpu else []
            if not all(cycles):
                raise TraceError("it lacks the GPU: CUPTI is missing, not permitted, or in use by another profiler")
            activities = join_cycles(cycles)
            averages = operators(profiler.key_averages(), on_gpu=on_gpu) if plan.operators else []
            return Trace(
                figures=compute_figures(activities, plan.repeat * plan.steps) if on_gpu else None,
                activities=activities,
                operations=[*device_operations(activities), *averages],
                files=files if plan.operators else [],
            )


def choose_folder(reporter: Reporter) -> Path:
    """Return the folder for a run's kept traces: its run directory, or a new one that all its ranks share.

    TensorBoard takes each folder for a run.
    """
    if reporter.directory:
        return reporter.directory
    run = os.environ.get("TORCHELASTIC_RUN_ID") or time.strftime("%Y%m%d-%H%M%S")
    folder = Path.cwd() / f"trace-{run}"
    folder.mkdir(exist_ok=True)
    return folder


def _report(trace: Trace, plan: Plan, seconds_per_step: float, reporter: Reporter) -> None:
    steps = plan.repeat * plan.steps
    reporter.result("traced_steps", steps)
    if trace.figures:
        for name, value, unit in _results(trace.figures, seconds_per_step):
            if value is not None:
                reporter.result(name, value, unit=unit)
    if trace.files:
        reporter.result("trace_file", str(trace.files[-1].absolute()))
    for operation in trace.operations:
        reporter.op(steps=steps, **asdict(operation))


def _results(figures: Figures, seconds_per_step: float) -> Iterator[tuple[str, float | None, str | None]]:
    # Clocks may have been lower in the traced steps, so that the GPU was busy for longer than a measured step lasts.
    gap_seconds = max(0.0, seconds_per_step - figures.busy_seconds_per_step)
    yield "gpu_busy_seconds_per_step", figures.busy_seconds_per_step, "s"
    yield "gpu_gap_seconds_per_step", gap_seconds, "s"
    yield "gpu_busy_share", 100 * figures.busy_seconds_per_step / (figures.busy_seconds_per_step + gap_seconds), "%"
    yield "kernels_per_step", figures.kernels_per_step, None
    yield "memcpy_share", figures.memcpy_share, "%"
    yield "memset_share", figures.memset_share, "%"
    yield "sm_efficiency_estimated", figures.sm_efficiency_percent, "%"
    yield "occupancy_estimated", figures.occupancy_percent, "%"
    if figures.communication:
        yield "communication_share", figures.communication.share, "%"
        yield "exposed_communication_share", figures.communication.exposed_share, "%"
        yield "communication_overlap_share", figures.communication.overlap_share, "%"
