"""What an experiment runs, and in which order: fixed by the file alone before the first run."""

import hashlib
import itertools
import json
import math
import random
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from gpuagent.environments import split_name
from gpuagent.experiment.file import SCHEMA, Entry, Experiment
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import Limits, memory_text
from gpuagent_common.naming import check_name
from gpuagent_proto.v1.run_pb2 import RunSpec

# More than a node makes in a day, were each over in a second: a list of values too many, not an experiment.
MAX_RUNS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Runs that differ only in chance: one workload, its parameters, and where and beside what it runs."""

    workload: str | None
    command: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    environment: str
    interference: tuple[str, ...]
    limits: Limits
    timeout_seconds: float | None
    once: bool

    @property
    def key(self) -> str:
        """What tells the cell from others, the same in every process."""
        return json.dumps(asdict(self), sort_keys=True)

    def describe(self) -> str:
        """Return what the cell is, in one line."""
        name = self.workload or shlex.join(self.command)
        parameters = [f"{key}={value}" for key, value in self.parameters]
        beside = [f"with {'+'.join(self.interference)}"] if self.interference else []
        limits = [str(self.limits)] if str(self.limits) != "none" else []
        return " · ".join([" ".join([name, *parameters]), self.environment, *beside, *limits])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of a cell. Repeats count from 1; those that warm up are 0 and below, and are never compared."""

    cell: Cell
    repeat: int

    def describe(self) -> str:
        """Return which run it is, in one line."""
        return f"{self.cell.describe()}, {f'repeat {self.repeat}' if self.repeat > 0 else 'warm-up'}"


def cells(experiment: Experiment) -> list[Cell]:
    """Return the cells in the order of the file, each once."""
    return list(dict.fromkeys(cell for entry in experiment.entries for cell in _cells(entry)))


def _cells(entry: Entry) -> Iterator[Cell]:
    names = list(entry.parameters)
    for values, environment, beside, limits in itertools.product(
        itertools.product(*entry.parameters.values()), entry.environments, entry.interference, entry.limits
    ):
        yield Cell(
            workload=entry.workload,
            command=entry.command,
            parameters=tuple(zip(names, values, strict=True)),
            environment=environment,
            interference=beside,
            limits=limits,
            timeout_seconds=entry.timeout_seconds,
            once=entry.once,
        )


def trials(experiment: Experiment) -> list[list[Trial]]:
    """Return the runs, a list a repeat, in the order in which they are made.

    Every repeat has each cell once, shuffled anew: what drifts meets all cells alike (randomised complete blocks).
    """
    every = cells(experiment)
    blocks = []
    for repeat in range(1 - experiment.warm_up, experiment.repeats + 1):
        wanted = [cell for cell in every if repeat == 1 or not cell.once]
        order = random.Random(f"{experiment.seed}/{repeat}").sample(wanted, len(wanted))  # noqa: S311 - no secret
        blocks.append([Trial(cell=cell, repeat=repeat) for cell in order])
    return blocks


def narrowed(
    experiment: Experiment, only: Sequence[str], *, name: str | None = None, repeats: int | None = None
) -> Experiment:
    """Return the experiment with only those environments and workloads that `only` names, as environment=bare.

    Raises:
        MisuseError: it is not KEY=VALUE of these keys, nothing or too much is left, or the name or a label is none.
    """
    wanted = _wanted(only)
    entries = [
        replace(entry, environments=environments)
        for entry in experiment.entries
        if not wanted["workload"] or entry.workload in wanted["workload"]
        if (environments := _chosen(entry.environments, wanted["environment"]))
    ]
    if not entries:
        raise MisuseError(f"no cell is left by --only {' '.join(only)}")
    for text in (*experiment.labels, *experiment.labels.values()):
        check_name(text, "a label of the file")
    left = replace(
        experiment,
        entries=tuple(entries),
        name=_checked(name) if name else experiment.name,
        repeats=repeats or experiment.repeats,
    )
    if (runs := _number_of_runs(left)) > MAX_RUNS:
        raise MisuseError(f"these are {runs:,} runs; an experiment has {MAX_RUNS:,} at most")
    return left


def _number_of_runs(experiment: Experiment) -> int:
    """Return how many runs there are at most, without making a list of them."""
    return sum(
        math.prod(map(len, entry.parameters.values()))
        * len(entry.environments)
        * len(entry.interference)
        * len(entry.limits)
        * (1 if entry.once else experiment.repeats + experiment.warm_up)
        for entry in experiment.entries
    )


def _checked(name: str) -> str:
    """Return a name that a file might have given; the journal is called by it."""
    pattern = json.loads(SCHEMA.read_text())["properties"]["name"]["pattern"]
    if not re.fullmatch(pattern, name):
        raise MisuseError(f"an experiment's name has up to 100 letters, digits, '.', '_' and '-'; not {name!r}")
    return name


def _wanted(only: Sequence[str]) -> dict[str, set[str]]:
    wanted: dict[str, set[str]] = {"environment": set(), "workload": set()}
    for text in only:
        key, equals, value = text.partition("=")
        if not equals or key not in wanted:
            raise MisuseError(f"--only takes environment=NAME or workload=NAME, not {text!r}")
        wanted[key].add(value)
    return wanted


def _chosen(environments: Sequence[str], wanted: set[str]) -> tuple[str, ...]:
    return tuple(one for one in environments if not wanted or {one, one.partition(":")[0]} & wanted)


def fingerprint(experiment: Experiment) -> str:
    """Return what changes when the runs of an experiment do."""
    runs = [(trial.cell.key, trial.repeat) for block in trials(experiment) for trial in block]
    return hashlib.sha256(json.dumps([experiment.name, experiment.metric, runs]).encode()).hexdigest()


def spec(trial: Trial, experiment: Experiment, working_directory: str) -> RunSpec:
    """Return what an agent is asked for."""
    cell = trial.cell
    kind, image = split_name(cell.environment)
    asked = RunSpec(
        workload=cell.workload or "",
        command=cell.command,
        parameters=dict(cell.parameters),
        repeats=1,
        first_repeat=trial.repeat if trial.repeat > 0 else trial.repeat + experiment.warm_up,
        environment=kind,
        image=image,
        interference=cell.interference,
        labels=experiment.labels,
        experiment=experiment.name if trial.repeat > 0 else f"{experiment.name}-warm-up",
        timeout_seconds=cell.timeout_seconds or 0,
        working_directory=working_directory if cell.command or kind == "bare" else "",
    )
    cell.limits.write(asked)
    return asked


def command_line(trial: Trial, experiment: Experiment) -> list[str]:
    """Return the command that would do the same run alone."""
    cell = trial.cell
    asked = spec(trial, experiment, "")
    options = ["--experiment", asked.experiment, "--first-repeat", str(asked.first_repeat)]
    options += ["--environment", cell.environment] if cell.environment != "bare" else []
    options += [word for beside in cell.interference for word in ("--with", beside)]
    options += _limit_options(cell.limits)
    options += [word for label in _pairs(experiment.labels) for word in ("--label", label)]
    options += ["--timeout", f"{cell.timeout_seconds:g}"] if cell.timeout_seconds else []
    if cell.command:
        return ["gpuagent", "run", *options, "--", *cell.command]
    parameters = [word for pair in _pairs(dict(cell.parameters)) for word in ("--param", pair)]
    return ["gpuagent", "run", str(cell.workload), *parameters, *options]


def _limit_options(limits: Limits) -> list[str]:
    cpus = [] if limits.cpus is None else ["--cpus", f"{limits.cpus:g}"]
    memory = [] if limits.memory_bytes is None else ["--memory", memory_text(limits.memory_bytes)]
    return [*cpus, *memory, *(word for change in limits.changes for word in ("--change", str(change)))]


def _pairs(values: Mapping[str, str]) -> Sequence[str]:
    return [f"{key}={value}" for key, value in values.items()]
