"""Checks an experiment before its first run, and makes its runs one after the other, within its budget."""

import json
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from gpuagent.environments.environment import EnvironmentUnavailableError, ImageUnavailableError
from gpuagent.experiment.file import Experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import Trial, describe_apart, digest_programs, fingerprint, looks, spec, trials
from gpuagent.runs.planning import PlannedRun
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.own_module import module_command
from gpuagent_common.text import counted, write_duration
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One run that has ended; its seconds and joules include the cool-down, not a wait behind other runs."""

    cell: str
    repeat: int
    run_id: str
    status: str
    seconds: float
    gpu_joules: float | None
    # The platform and the node; None: an older journal, which counts for any.
    place: str | None = None


class ChangedProgramError(MisuseError):
    """A program or script has changed since the first of the runs that would be continued."""


class Journal:
    """The runs of an experiment on this node, and the file that says which of them have ended.

    The file has JSON lines: the plan's fingerprint with the digests of its programs' files, then one line a run, on
    the disk before the next run begins.

    Args:
        whole: the experiment of the file.
        part: what is made of it now; None: all.
        lacking: why this node skips cells, by their keys.
        place: the platform and the node of its runs; on another one each run is made again; None: unknown.

    Raises:
        MisuseError: the file is of another plan with the same name, or runs are left and a program has changed.
        GpuAgentError: the file cannot be read or written.
    """

    def __init__(
        self,
        path: Path,
        whole: Experiment,
        part: Experiment | None = None,
        lacking: Mapping[str, str] = MappingProxyType({}),
        place: str | None = None,
    ) -> None:
        self.experiment, self.lacking, self.place = part or whole, lacking, place
        self.blocks = trials(self.experiment, lacking)
        self.every = [trial for block in self.blocks for trial in block]
        self._path, self._whole = path, whole
        self._head: dict[str, Any] = {"plan": fingerprint(whole), "programs": digest_programs(whole)}
        try:
            head, *done = list(_whole_lines(path)) or [self._head]
        except OSError as error:
            raise GpuAgentError(f"cannot read {path}: {error.strerror}") from error
        if head.get("plan") != self._head["plan"]:
            raise MisuseError(
                f"an experiment with this name has begun here with other runs ({path}); "
                "give this one another --name, since runs of both would be compared as one"
            )
        # Every run of the file that has ended here, in the order of their ends.
        every = [Done(**line) for line in done]
        self.done = [each for each in every if each.place in (None, place)]
        self._ended = {(done.cell, done.repeat) for done in self.done}
        # An older journal has no digests.
        self._head = {**self._head, "programs": {**self._head["programs"], **head.get("programs", {})}}
        if every and self.left() and (changed := self.changed_programs()):
            raise ChangedProgramError(
                f"{changed} changed since the first runs of {whole.name}; "
                "give this one another --name, since runs of both would be compared as one"
            )

    def changed_programs(self) -> str:
        """Return the names of programs and scripts that have changed since the first run, or an empty text."""
        before, now = self._head["programs"], digest_programs(self._whole)
        return ", ".join(name for name in now if before.get(name, now[name]) != now[name])

    def left(self, of: Iterable[Trial] | None = None) -> list[Trial]:
        """Return the runs that have not ended. Failed runs have: repeating them until they succeed would bias."""
        every = self.every if of is None else of
        return [trial for trial in every if (trial.cell.key, trial.repeat) not in self._ended]

    def ended(self) -> list[Done]:
        """Return those of its runs that have ended; the file may have other cells of the experiment too."""
        wanted = {(trial.cell.key, trial.repeat) for trial in self.every}
        return [done for done in self.done if (done.cell, done.repeat) in wanted]

    def expected_seconds(self, of: Iterable[Trial]) -> float:
        """Return the expected time of runs, from those of the same cell, or else of all; 0 before the first."""
        if not self.done:
            return 0.0
        by_cell: dict[str, list[float]] = {}
        for one in self.done:
            by_cell.setdefault(one.cell, []).append(one.seconds)
        every = [one.seconds for one in self.done]
        return sum(statistics.mean(by_cell.get(trial.cell.key, every)) for trial in of)

    def add(self, done: Done) -> None:
        """Store that a run has ended. Raises GpuAgentError when the file cannot be written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                lines = [asdict(done)] if file.tell() else [self._head, asdict(done)]
                file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise GpuAgentError(f"cannot write {self._path}: {error.strerror}") from error
        self.done.append(done)
        self._ended.add((done.cell, done.repeat))


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal; a last one that a crash cut short is removed from the file."""
    content = path.read_bytes() if path.exists() else b""
    whole, _, rest = content.rpartition(b"\n")
    if rest:
        with path.open("r+b") as file:
            file.truncate(len(content) - len(rest))
    for line in whole.splitlines():
        try:
            yield dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise GpuAgentError(f"{path} is damaged; move it away to start the experiment anew") from error


_CHECK_TIMEOUT_SECONDS = 120.0

# A run that is first in its queue starts sooner.
QUEUED_SECONDS = 5.0

# Has the node's agent execute a run, and yields the run's updates.
Submit = Callable[[RunSpec], Iterator[RunUpdate]]


class Observer(Protocol):
    """A display of an experiment's progress."""

    def wait(self, trial: Trial, reason: str) -> None:
        """Show that a run is next, and why it waits."""

    def begin(self, trial: Trial) -> None:
        """Show that a run begins."""

    def end(self, trial: Trial, update: RunUpdate, seconds: float, cool_down_seconds: float) -> None:
        """Show that a run has ended after `seconds`, and the seconds of the cool-down before it."""

    def note(self, words: str) -> None:
        """Show something else that is worth a line."""


class _Meters(NamedTuple):
    seconds: float
    # Energy of all GPUs since their driver was loaded; None: they do not count it.
    joules: float | None


@dataclass(slots=True, kw_only=True)
class Conductor:
    """The execution of one experiment."""

    journal: Journal
    gpus: NodeGpus
    submit: Submit
    observer: Observer
    working_directory: str
    # Prepares the node for a run, which is not measured.
    prepare: Callable[[Trial], None] = lambda _trial: None
    # Sleeps for the seconds of a cool-down.
    sleep: Callable[[float], None] = time.sleep
    # Returns whether the intervals are narrow enough to stop; asked after the repeats that the plan has.
    is_narrow: Callable[[], bool] = lambda: False
    # Whether the experiment stopped at a planned look.
    has_stopped: bool = False

    def run(self) -> bool:
        """Make every run that has not been made; return whether all repeats are complete.

        A run that ended is never repeated, even if it failed. A cell that failed too often is given up, and a repeat
        that would exceed the budget does not begin. At a planned look, intervals that are narrow enough end it.
        """
        experiment = self.journal.experiment
        planned, given_up = looks(experiment), set[str]()
        wide = f"no look found intervals as narrow as {experiment.until:g} %" if experiment.until else ""
        for block in self.journal.blocks:
            left = self.journal.left(block)
            if left and (reason := self._exceeded_budget(left)):
                complete = max(0, left[0].repeat - 1)
                ends = f"the budget ends it after {complete} of {experiment.repeats} repeats: {reason}"
                self.observer.note("; ".join(filter(None, [ends, wide])))
                return False
            for trial in left:
                failed = [one for one in self.journal.done if one.status != "succeeded" and one.cell == trial.cell.key]
                if len(failed) < experiment.failures:
                    self._make(trial)
                elif trial.cell.key not in given_up:
                    given_up.add(trial.cell.key)
                    failures = counted(experiment.failures, "failure")
                    self.observer.note(f"given up after {failures}: {trial.cell.describe()}")
            repeat = block[0].repeat if block else 0
            # After an interruption later runs exist: the figures are no longer those of this look.
            is_look = repeat in planned[:-1] and all(done.repeat <= repeat for done in self.journal.done)
            if is_look and self.is_narrow():
                self.observer.note(f"the intervals are narrow enough after {repeat} repeats; it stops here")
                self.has_stopped = True
                return True
        if wide:
            more = "a new experiment with more repeats may"
            self.observer.note(f"all {experiment.repeats} repeats are made: {wide}; {more}")
        return True

    def _make(self, trial: Trial) -> None:
        cools = self._read_meters()
        self.gpus.cool_down(self.journal.experiment.cool_down, partial(self.observer.wait, trial), self.sleep)
        cooled = self._read_meters()
        self.prepare(trial)
        self.observer.begin(trial)
        queued: _Meters | None = None
        started: _Meters | None = None
        has_waited = False
        for update in self.submit(spec(trial, self.journal.experiment, self.working_directory)):
            queued = queued or self._read_meters()  # it was planned before, which is no wait
            if update.status == "queued" and update.reason:
                self.observer.wait(trial, f"waits: {update.reason}")
                has_waited = True
            elif update.status == "running":
                started = self._read_meters()
                waited_seconds = started.seconds - queued.seconds
                if has_waited or waited_seconds >= QUEUED_SECONDS:
                    self.observer.wait(trial, f"waited {waited_seconds:.3g} s behind other runs")
                    self.observer.begin(trial)
        ended = self._read_meters()
        started = started or ended
        worked = [(cools, queued or ended), (started, ended)]
        joules = [
            after.joules - before.joules
            for before, after in worked
            if before.joules is not None and after.joules is not None
        ]
        self.journal.add(
            Done(
                cell=trial.cell.key,
                repeat=trial.repeat,
                run_id=update.run_id,
                status=update.status,
                seconds=sum(after.seconds - before.seconds for before, after in worked),
                gpu_joules=sum(joules) if len(joules) == len(worked) else None,
                place=self.journal.place,
            )
        )
        self.observer.end(trial, update, ended.seconds - started.seconds, cooled.seconds - cools.seconds)

    def _read_meters(self) -> _Meters:
        return _Meters(time.monotonic(), self.gpus.joules())

    def _exceeded_budget(self, left: Sequence[Trial]) -> str | None:
        """Return in words the budget that the rest of a repeat would exceed, from the runs before; None: no budget."""
        most, done = self.journal.experiment, self.journal.done
        hours = (sum(one.seconds for one in done) + self.journal.expected_seconds(left)) / 3600
        if most.most_hours is not None and hours > most.most_hours:
            taken, allowed = write_duration(3600 * hours), write_duration(3600 * most.most_hours)
            return f"with another it would have taken {taken} of {allowed}"
        if most.most_kilowatt_hours is None or not done:
            return None
        joules = [one.gpu_joules for one in done if one.gpu_joules is not None]
        if len(joules) < len(done):
            return "the GPUs do not count energy, and kilowatt_hours is limited"
        kilowatt_hours = (sum(joules) + len(left) * statistics.mean(joules)) / 3.6e6
        if kilowatt_hours > most.most_kilowatt_hours:
            return f"with another it would have taken {kilowatt_hours:.3g} of {most.most_kilowatt_hours:g} kWh"
        return None


def check_cells(
    experiment: Experiment,
    plan: Callable[[RunSpec], list[PlannedRun]],
    gpus: NodeGpus,
    *,
    may_lack_all: bool = False,
    working_directory: str = "",
) -> Mapping[str, str]:
    """Check that every cell can be planned: workload, parameters and environment exist, and `plan` allows them.

    Returns:
        The reason for each cell that this node lacks something for, by its key.

    Raises:
        MisuseError: a cell is invalid; names it.
        GpuAgentError: a cell is not allowed, the node lacks something for every cell, or the workloads cannot be
            listed.
    """
    every = experiment.cells
    number = len(gpus.temperatures())
    lacking: dict[str, str] = {}
    for cell in every:
        try:
            (planned,) = plan(spec(Trial(cell=cell, repeat=1), experiment, working_directory))
            if planned.job.image is None:
                # Without an image, the program has to be on the node.
                planned.environment.launch(planned.job)
        except (EnvironmentUnavailableError, ImageUnavailableError) as error:
            lacking[cell.key] = str(error)
        except MisuseError as error:
            raise MisuseError(f"{describe_apart(every)[cell.key]}: {error}") from error
        else:
            if reason := _lacking_gpus(planned, number):
                lacking[cell.key] = reason
    if len(lacking) == len(every) and not may_lack_all:
        raise GpuAgentError(f"nothing of {experiment.name} can run here: {'; '.join(dict.fromkeys(lacking.values()))}")
    return lacking


def describe_skipped(experiment: Experiment, lacking: Mapping[str, str]) -> list[str]:
    """Return a line for each reason why cells are skipped, with their workloads."""
    names: dict[str, list[str]] = {}
    for cell in experiment.cells:
        if cell.key in lacking:
            names.setdefault(lacking[cell.key], []).append(cell.name)
    return [f"skipped {counted(len(of), 'cell')} of {', '.join(dict.fromkeys(of))}: {why}" for why, of in names.items()]


def environment_concerns(experiment: Experiment, lacking: Mapping[str, str]) -> Iterator[str]:
    """Yield that one environment alone can run here, if the answer only compares environments."""
    left = {cell.environment for cell in experiment.cells if cell.key not in lacking}
    comparisons = [answer for answer in experiment.answers if answer.startswith("compare")]
    is_asked = comparisons and all(re.search(r" --by[= ]environment\b", answer) for answer in comparisons)
    if is_asked and len(left) == 1 and {cell.environment for cell in experiment.cells} - left:
        yield f"only {left.pop()} can run here, so no environments can be compared"


def check_parameters(experiment: Experiment, check: Callable[[str, Sequence[Mapping[str, str]]], None]) -> None:
    """Have `check` look at the parameters of each built-in workload, which may contradict one another."""
    given: dict[str, list[Mapping[str, str]]] = {}
    for cell in experiment.cells:
        if cell.asked.workload:
            given.setdefault(cell.asked.workload, []).append(cell.asked.parameters)
    for name, sets in given.items():
        check(name, sets)


def _lacking_gpus(planned: PlannedRun, there: int) -> str | None:
    """Return what a built-in workload with these parameters lacks on a node with so many GPUs; None: nothing."""
    parameters = planned.parameters
    device = parameters.get("device")
    # A job of Slurm or Kubernetes may get the GPUs of another node.
    if device == "cpu" or planned.environment.name.startswith(("slurm", "kubernetes")):
        return None
    if not there:
        split = parameters.get("split") or 1
        if device == "cuda" or parameters.get("counters") == "ncu" or split != 1:
            return "no GPU answers here"
        is_unbounded = "limit-bytes" in parameters and parameters["limit-bytes"] is None
        return f"without a GPU, {planned.workload} needs --param limit-bytes=BYTES" if is_unbounded else None
    if parameters.get("counters") == "ncu" and planned.job.image is None and not shutil.which("ncu"):
        return "ncu is not on the PATH; it comes with NVIDIA Nsight Compute"
    wanted = max(value for name in ("ranks", "split") if isinstance(value := parameters.get(name) or 1, int))
    return f"it needs {wanted} GPUs, and this node has {there}" if wanted > there else None


def check_concerns(concerns: Iterable[str], *, force: bool) -> None:
    """Refuse to start because of concerns, unless forced. Raises GpuAgentError where there are concerns."""
    reasons = [] if force else list(concerns)
    if reasons:
        raise GpuAgentError(f"{'; '.join(reasons)}. --force starts nevertheless")


def occupant_concerns(experiment: Experiment, gpus: NodeGpus) -> Iterator[str]:
    """Yield the GPUs that are busy already, except those of running servers where the experiment only loads servers."""
    every = [cell.asked.parameters for cell in experiment.cells]
    is_load_alone = all("url" in parameters and "gpus" in parameters for parameters in every)
    served = ",".join(parameters["gpus"] for parameters in every) if is_load_alone else ""
    return gpus.occupants({uuid.strip() for uuid in served.split(",")})


def torch_concerns(experiment: Experiment, python: str, gpus: NodeGpus) -> Iterator[str]:
    """Yield why the torch of this Python cannot use the GPUs that the experiment's workloads would want."""
    if not (any(cell.asked.workload for cell in experiment.cells) and gpus.temperatures()):
        return
    command = [*module_command(python, "gpuagent_workloads"), "check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpuAgentError(f"cannot check whether the torch of {python} can use the GPUs: {error}") from error
    if done.returncode:
        yield done.stderr.strip().removeprefix("error: ").replace("\n", "; ")
