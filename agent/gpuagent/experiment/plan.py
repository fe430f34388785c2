"""The runs of an experiment in their order: fixed by the file alone before the first run."""

import hashlib
import itertools
import json
import math
import random
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from gpuagent.environments import split_name
from gpuagent.experiment.file import SCHEMA, Entry, Experiment
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import Limits
from gpuagent_common.naming import WARM_UP, check_label
from gpuagent_common.program_name import name_program
from gpuagent_proto.v1.run_pb2 import RunSpec

# More than a node makes in a day at one a second: a list of values too many, not an experiment.
MAX_RUNS = 100_000

# Commands of at most so many characters are shown whole.
_SHORT_COMMAND = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Runs that differ only by chance: one workload with its parameters, environment, neighbours and limits."""

    entry: Entry
    # That of the entry with the words of its arguments; empty for a built-in workload.
    command: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...]
    environment: str
    interference: tuple[str, ...]
    limits: Limits
    # For display: words of the command that others of this name lack.
    words_apart: tuple[str, ...] = field(default=(), compare=False)

    @property
    def key(self) -> str:
        """The cell's identity, the same in every process."""
        asked = self.entry.asked.SerializeToString(deterministic=True).hex()
        of_entry = (asked, self.command, self.entry.once, sorted(self.entry.labels.items()))
        return json.dumps(
            [self.parameters, self.environment, self.interference, str(self.limits), self.options, of_entry]
        )

    @property
    def options(self) -> tuple[str, ...]:
        """Further options of the site, for its environment."""
        return self.entry.options.get(self.environment.partition(":")[0], ())

    @property
    def name(self) -> str:
        """The name of its workload, or that under which its command is compared; empty: the command has none."""
        return self.entry.asked.workload or self.entry.asked.name

    def describe(self) -> str:
        """Return the cell in one line."""
        name = " ".join(self._program()) if self.name else shlex.join(self.command)
        # A server's command would fill a line; its name says which it is.
        parameters = [f"{key}={value}" for key, value in self.parameters if key != "serve"]
        return " · ".join([" ".join([name, *parameters]), *self.circumstances()])

    def parts(self) -> list[str]:
        """Return its properties that can differ from those of other cells, each in words."""
        parameters = [f"--{key} {value}" for key, value in self.parameters if key != "serve"]
        return [*self._program(), *parameters, *self.circumstances()]

    def _program(self) -> list[str]:
        words = [" ".join(self.words_apart)] if self.words_apart else []
        return [self.name or name_program(self.command), *words]

    def circumstances(self) -> list[str]:
        """Return its environment, and what is beside it or limits it."""
        beside = [f"with {'+'.join(self.interference)}"] if self.interference else []
        limits = [str(self.limits)] if str(self.limits) != "none" else []
        labels = [f"{key}: {value}" for key, value in self.entry.labels.items()]
        return [self.environment, *beside, *limits, *labels]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of a cell. Repeats count from 1; warm-ups are 0 and below, and never compared."""

    cell: Cell
    repeat: int

    def describe(self) -> str:
        """Return the run in one line."""
        return f"{self.cell.describe()}, {f'repeat {self.repeat}' if self.repeat > 0 else 'warm-up'}"


def cells(experiment: Experiment) -> list[Cell]:
    """Return the cells in the order of the file, each once."""
    every = (
        Cell(
            entry=entry,
            command=(*entry.asked.command, *itertools.chain.from_iterable(arguments)),
            parameters=(*zip(entry.parameters, values, strict=True), *server),
            environment=environment,
            interference=beside,
            limits=limits,
        )
        for entry in experiment.entries
        for values, arguments, server, environment, beside, limits in itertools.product(
            itertools.product(*entry.parameters.values()),
            itertools.product(*entry.arguments),
            entry.servers,
            entry.environments,
            entry.interference,
            entry.limits,
        )
    )
    distinct = list({cell.key: cell for cell in every}.values())
    # Words that all commands of a name have.
    shared: dict[str, set[str]] = {}
    for cell in distinct:
        shared[cell.name] = shared.get(cell.name, set(cell.command)) & set(cell.command)
    return [replace(cell, words_apart=_words_apart(cell.command, shared[cell.name])) for cell in distinct]


def _words_apart(command: Sequence[str], shared: Collection[str]) -> tuple[str, ...]:
    """Return the words of a command that others of its name lack; a value comes with its option."""
    found: list[str] = []
    for before, word in itertools.pairwise(("", *command)):
        if word not in shared:
            found += [before, word] if before in shared and before.startswith("-") else [word]
    return tuple(found)


def describe_apart(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the differences of each cell from the others in one line, by its key."""
    every = [cell.parts() for cell in cells]
    lines = {cell.command: " ".join(cell.command).removeprefix("sh -c ") for cell in cells}
    if all(cell.command for cell in cells) and max(map(len, lines.values())) <= _SHORT_COMMAND:
        # Whole commands, where they are short.
        every = [[lines[cell.command], *cell.circumstances()] for cell in cells]
    shared = set(every[0]).intersection(*every[1:]) if len(cells) > 1 else set(every[0][1:])
    apart = [" · ".join(part for part in parts if part not in shared) for parts in every]
    return {cell.key: words or cell.describe() for cell, words in zip(cells, apart, strict=True)}


def trials(experiment: Experiment, without: Collection[str] = ()) -> list[list[Trial]]:
    """Return the runs in their order, one list a repeat, without those of the cells with these keys.

    Every repeat has each cell once (randomised complete blocks). The order is shuffled in every odd repeat, and the
    next one has its reverse: over both, no cell comes earlier than another. Chance alone leaves some cells mostly
    early, and a node that warms up within a repeat slows those that are late. Cells that are left out do not change the
    order of the others.
    """
    every = cells(experiment)
    blocks = []
    for repeat in range(1 - experiment.warm_up, experiment.repeats + 1):
        odd = repeat - (repeat + 1) % 2
        order = random.Random(f"{experiment.seed}/{odd}").sample(every, len(every))  # noqa: S311 - no secret
        made = [cell for cell in order[:: 1 if repeat == odd else -1] if repeat == 1 or not cell.entry.once]
        blocks.append([Trial(cell=cell, repeat=repeat) for cell in made if cell.key not in without])
    return blocks


# Before that, the exact test has no interval at the level of several looks. Each look waits for half as many more.
_FIRST_LOOK, _GROWTH = 8, 1.5

# The label of runs that has the rule by which their experiment may stop. The collector reads it.
RULE_LABEL = "until"


def looks(experiment: Experiment) -> list[int]:
    """Return the repeats after which the experiment may stop, the last one included; empty: it may not stop early."""
    if experiment.until is None:
        return []
    found = [_FIRST_LOOK]
    while found[-1] < experiment.repeats:
        found.append(min(math.ceil(_GROWTH * found[-1]), experiment.repeats))
    return found


def all_trials(experiment: Experiment, without: Collection[str] = ()) -> list[Trial]:
    """Return the runs of all repeats in their order, as `trials` does."""
    return [trial for block in trials(experiment, without) for trial in block]


def narrowed(
    experiment: Experiment, only: Sequence[str], *, name: str | None = None, repeats: int | None = None
) -> Experiment:
    """Return the experiment with only those environments and workloads that `only` names, such as environment=bare.

    Raises:
        MisuseError: `only` is not KEY=VALUE of these keys, no run or too many are left, or a name or label is invalid.
    """
    wanted: dict[str, set[str]] = {"environment": set(), "workload": set()}
    for text in only:
        key, equals, value = text.partition("=")
        if not equals or key not in wanted:
            raise MisuseError(f"--only takes environment=NAME or workload=NAME, not {text!r}")
        wanted[key].add(value)
    entries = []
    for entry in experiment.entries:
        kept = [
            one
            for one in entry.environments
            if not wanted["environment"] or {one, one.partition(":")[0]} & wanted["environment"]
        ]
        named = entry.asked.workload or entry.asked.name or name_program(entry.asked.command)
        if kept and (not wanted["workload"] or named in wanted["workload"]):
            entries.append(replace(entry, environments=tuple(kept)))
    if not entries:
        raise MisuseError(f"--only {' '.join(only)} leaves no cell; it takes names that the file has")
    for labels in (experiment.labels, *(entry.labels for entry in experiment.entries)):
        for label, value in labels.items():
            check_label(label, value, "labels of the file")
    # The journal's file has this name.
    if name and not re.fullmatch(json.loads(SCHEMA.read_text())["properties"]["name"]["pattern"], name):
        raise MisuseError(f"an experiment's name has up to 100 letters, digits, '.', '_' and '-'; not {name!r}")
    left = replace(
        experiment, entries=tuple(entries), name=name or experiment.name, repeats=repeats or experiment.repeats
    )
    _check_whole(left)
    if (runs := _count_runs(left)) > MAX_RUNS:
        raise MisuseError(f"these are {runs:,} runs; an experiment has {MAX_RUNS:,} at most")
    return left


def _check_whole(experiment: Experiment) -> None:
    """Raise MisuseError where all runs would be warm-ups, or none could stop early, or record the rule for it."""
    if experiment.name.endswith(WARM_UP):
        raise MisuseError(f"runs of {experiment.name} would be warm-ups; give a name that does not end in {WARM_UP}")
    if experiment.until is None:
        return
    if experiment.repeats <= _FIRST_LOOK:
        raise MisuseError(f"until needs more than {_FIRST_LOOK} repeats or rounds, such as 40; it may need fewer")
    if not any(answer.startswith("compare") for answer in experiment.answers):
        raise MisuseError("until needs a `compare` in the answer: its intervals decide")


def with_parameters(experiment: Experiment, texts: Sequence[str], takes: Callable[[str, str], bool]) -> Experiment:
    """Return the experiment with parameters of its workloads replaced.

    Args:
        experiment: the experiment.
        texts: [WORKLOAD:]NAME=VALUE; without a workload, of every one that has the parameter. The same name several
            times stands for a run with each value.
        takes: returns whether a workload has a parameter.

    Raises:
        MisuseError: a text has another form, or no workload of the experiment has its parameter.
    """
    given: dict[tuple[str, str], list[str]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        workload, colon, name = key.rpartition(":")
        if not equals or not name or (colon and not workload):
            raise MisuseError(f"--param takes NAME=VALUE or WORKLOAD:NAME=VALUE, not {text!r}")
        given.setdefault((workload, name.replace("_", "-")), []).append(value)
    entries, used = [], set()
    for entry in experiment.entries:
        named = entry.asked.workload
        fitting = {key: tuple(values) for key, values in given.items() if named and key[0] in ("", named)}
        fitting = {key: values for key, values in fitting.items() if takes(named, key[1])}
        used |= set(fitting)
        # Those of this workload alone come last.
        new = {name: values for (_, name), values in sorted(fitting.items())}
        old = {name: values for name, values in entry.parameters.items() if name.replace("_", "-") not in new}
        entries.append(replace(entry, parameters=old | new))
    for workload, name in given:
        if (workload, name) not in used:
            what = f"{workload} of this experiment has no" if workload else "no workload of this experiment has"
            raise MisuseError(f"--param {name}: {what} such parameter")
    return replace(experiment, entries=tuple(entries))


def _count_runs(experiment: Experiment) -> int:
    return sum(
        math.prod(map(len, entry.parameters.values()))
        * math.prod(map(len, entry.arguments))
        * len(entry.servers)
        * len(entry.environments)
        * len(entry.interference)
        * len(entry.limits)
        * (1 if entry.once else experiment.repeats + experiment.warm_up)
        for entry in experiment.entries
    )


def fingerprint(experiment: Experiment) -> str:
    """Return a digest of the name, the metric and the runs of an experiment."""
    runs = [(trial.cell.key, trial.repeat) for trial in all_trials(experiment)]
    identity = [experiment.name, experiment.metric, runs, experiment.until]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def spec(trial: Trial, experiment: Experiment, working_directory: str) -> RunSpec:
    """Return the request to an agent."""
    cell = trial.cell
    kind, image = split_name(cell.environment)
    planned = ",".join(map(str, looks(experiment)))
    rule = {RULE_LABEL: f"{experiment.until:g}% at {planned}"} if planned else {}
    asked = RunSpec(
        parameters=dict(cell.parameters),
        repeats=1,
        first_repeat=trial.repeat if trial.repeat > 0 else trial.repeat + experiment.warm_up,
        environment=kind,
        image=image,
        interference=cell.interference,
        labels={**experiment.labels, **cell.entry.labels, **rule},
        experiment=experiment.name if trial.repeat > 0 else f"{experiment.name}{WARM_UP}",
        options=cell.options,
        working_directory=working_directory if cell.command or kind == "bare" else "",
    )
    asked.MergeFrom(cell.entry.asked)
    asked.command[:] = cell.command
    cell.limits.write(asked)
    return asked
