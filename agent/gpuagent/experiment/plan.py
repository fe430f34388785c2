"""The runs of an experiment in their order: fixed by the file alone before the first run."""

import contextlib
import difflib
import hashlib
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuagent.environments import split_name
from gpuagent.experiment.file import MAX_RUNS, SCHEMA, Cell, Experiment, distinct
from gpuagent_common.errors import MisuseError
from gpuagent_common.looks import FIRST_LOOK, RULE_LABEL, plan_looks, write_rule
from gpuagent_common.naming import WARM_UP, check_label
from gpuagent_common.program_name import is_program, name_program
from gpuagent_common.text import differing_words
from gpuagent_proto.v1.run_pb2 import RunSpec

# In messages, commands of at most so many characters are shown whole.
_SHORT_COMMAND = 40

# Of larger files, such as images, the size and the time of the last change stand for the content.
_MOST_READ_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of a cell. Repeats count from 1; warm-ups are 0 and below, and never compared."""

    cell: Cell
    repeat: int

    def describe(self) -> str:
        """Return the run in one line."""
        return f"{self.cell.describe()}, {f'repeat {self.repeat}' if self.repeat > 0 else 'warm-up'}"


def describe_apart(cells: Sequence[Cell], most: int = _SHORT_COMMAND) -> dict[str, str]:
    """Return the differences of each cell from the others in one line, by its key.

    Commands are whole where all have at most `most` characters.
    """
    lines = [" ".join(cell.asked.command).removeprefix("sh -c ") for cell in cells]
    are_of_shells = [cell.asked.command[:2] == ["sh", "-c"] for cell in cells]
    is_short = all(0 < len(line) <= most for line in lines)
    shown = differing_words(lines) if all(are_of_shells) and not is_short else lines
    every = []
    for cell, words, is_of_shell in zip(cells, shown, are_of_shells, strict=True):
        # The label of a shell's line says the same.
        place = [part for part in cell.place() if not part.startswith("command: ")]
        if is_short or all(are_of_shells):
            every.append([words, *place])
        elif is_of_shell:
            every.append([cell.name, *([words] if cell.words_apart else []), *place])
        else:
            every.append(cell.parts())
    shared = set(every[0]).intersection(*every[1:]) if len(cells) > 1 else set(every[0][1:])
    apart = [" · ".join(part for part in parts if part not in shared) for parts in every]
    wholes = [line or cell.describe() for line, cell in zip(lines, cells, strict=True)]
    return {cell.key: words or whole for cell, words, whole in zip(cells, apart, wholes, strict=True)}


def trials(experiment: Experiment, without: Collection[str] = ()) -> list[list[Trial]]:
    """Return the runs in their order, one list a repeat, without those of the cells with these keys.

    Every repeat has each cell once (randomised complete blocks). The order is shuffled in every odd repeat, and the
    next one has its reverse: over both, no cell comes earlier than another. Chance alone leaves some cells mostly
    early, and a node that warms up within a repeat slows those that are late. Cells that are left out do not change the
    order of the others.
    """
    every = experiment.cells
    blocks = []
    for repeat in range(1 - experiment.warm_up, experiment.repeats + 1):
        odd = repeat - (repeat + 1) % 2
        order = random.Random(f"{experiment.seed}/{odd}").sample(every, len(every))  # noqa: S311 - no secret
        made = [cell for cell in order[:: 1 if repeat == odd else -1] if repeat == 1 or not cell.once]
        blocks.append([Trial(cell=cell, repeat=repeat) for cell in made if cell.key not in without])
    return blocks


def looks(experiment: Experiment) -> list[int]:
    """Return the repeats after which the experiment may stop, the last one included; empty: it may not stop early."""
    return [] if experiment.until is None else plan_looks(experiment.repeats)


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
    kept = [
        cell
        for cell in experiment.cells
        if (not wanted["environment"] or {cell.environment, cell.asked.environment} & wanted["environment"])
        and (not wanted["workload"] or cell.name in wanted["workload"])
    ]
    if not kept:
        names = {
            "workload": dict.fromkeys(cell.name for cell in experiment.cells),
            "environment": dict.fromkeys(cell.environment for cell in experiment.cells),
        }
        there = " ".join(f"{key}={name}" for key, named in names.items() if wanted[key] for name in named)
        raise MisuseError(f"--only {' '.join(only)} leaves no cell; the file has {there:.100}")
    for labels in (experiment.labels, *(cell.asked.labels for cell in experiment.cells)):
        for label, value in labels.items():
            check_label(label, value, "labels of the file")
    # The journal's file has this name.
    if name and not re.fullmatch(json.loads(SCHEMA.read_text())["properties"]["name"]["pattern"], name):
        raise MisuseError(f"an experiment's name has up to 100 letters, digits, '.', '_' and '-'; not {name!r}")
    left = replace(experiment, cells=tuple(kept), name=name or experiment.name, repeats=repeats or experiment.repeats)
    _check_whole(left)
    if kept == [*experiment.cells]:
        _check_arguments(left)
    if (runs := sum(1 if cell.once else left.repeats + left.warm_up for cell in kept)) > MAX_RUNS:
        raise MisuseError(f"these are {runs:,} runs; an experiment has {MAX_RUNS:,} at most")
    return left


def _check_arguments(experiment: Experiment) -> None:
    """Raise MisuseError where an answer compares by an argument that no command has, or takes it for a parameter."""
    commands = [cell.asked.command for cell in experiment.cells if cell.asked.command]
    # A shell's line is one word.
    words = (word.partition("=")[0] for command in commands for word in " ".join(command).split())
    known = {word.lstrip("-"): word for word in words}
    asked = [each for answer in experiment.answers for each in re.findall(r"\b(argument|parameter):([\w.-]+)", answer)]
    for kind, name in asked if commands else ():
        if kind == "parameter":
            if len(commands) == len(experiment.cells):
                raise MisuseError(f"answer --by parameter:{name}: commands have arguments: --by argument:{name}")
        elif name.lstrip("-") not in known:
            close = difflib.get_close_matches(name.lstrip("-"), known, n=1)
            hint = f"; did you mean argument:{known[close[0]]}?" if close else ""
            raise MisuseError(f"answer --by argument:{name}: no command of the file has the argument {name}{hint}")


def _check_whole(experiment: Experiment) -> None:
    """Raise MisuseError where all runs would be warm-ups, or none could stop early, or record the rule for it."""
    if experiment.name.endswith(WARM_UP):
        raise MisuseError(f"runs of {experiment.name} would be warm-ups; give a name that does not end in {WARM_UP}")
    if experiment.until is None:
        return
    if experiment.repeats <= FIRST_LOOK:
        raise MisuseError(
            f"until needs more than {FIRST_LOOK} repeats or rounds, such as 40: it looks first after {FIRST_LOOK}"
        )
    if not any(answer.startswith("compare") for answer in experiment.answers):
        raise MisuseError("until needs a `compare` in the answer: its intervals decide")


def with_parameters(experiment: Experiment, texts: Sequence[str], takes: Callable[[str, str], bool]) -> Experiment:
    """Return the experiment with parameters of its workloads replaced.

    Args:
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
    cells: list[Cell] = []
    used: set[tuple[str, str]] = set()
    for cell in experiment.cells:
        named = cell.asked.workload
        # Those of this workload alone come last.
        fitting = sorted(key for key in given if named and key[0] in ("", named) and takes(named, key[1]))
        used.update(fitting)
        new = {name: given[workload, name] for workload, name in fitting}
        for values in itertools.product(*new.values()):
            asked = RunSpec()
            asked.CopyFrom(cell.asked)
            for name in [name for name in asked.parameters if name.replace("_", "-") in new]:
                del asked.parameters[name]
            asked.parameters.update(zip(new, values, strict=True))
            cells.append(replace(cell, asked=asked))
    for workload, name in given:
        if (workload, name) not in used:
            what = f"{workload} of this experiment has no" if workload else "no workload of this experiment has"
            raise MisuseError(f"--param {name}: {what} such parameter")
    return replace(experiment, cells=distinct(cells))


def fingerprint(experiment: Experiment) -> str:
    """Return a digest of the name, the metric and the runs of an experiment."""
    runs = [(trial.cell.key, trial.repeat) for block in trials(experiment) for trial in block]
    identity = [experiment.name, experiment.metric, runs, experiment.until]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def digest_programs(experiment: Experiment) -> dict[str, str]:
    """Return a digest of each program and script that the commands name and that is here, by its name there.

    Other files that they name may be what the runs write.
    """
    digests: dict[str, str] = {}
    for cell in experiment.cells:
        command = list(cell.asked.command)
        name = name_program(command) if command else ""
        lines = [*command[2:3]] if command[:2] == ["sh", "-c"] else []
        lines += [cell.asked.parameters["serve"]] if "serve" in cell.asked.parameters else []
        # `python -m package.module` names no file.
        modules = [f"{name.replace('.', '/')}.py"] if "-m" in command else []
        for word in (*command, *modules, *re.split(r"[\s;&|<>()'\"`]+", " ".join(lines))):
            path = Path(word)
            with contextlib.suppress(OSError, ValueError):  # no file's name, or one that is not readable
                is_run = is_program(word) or path.name == name or os.access(path, os.X_OK)
                if word not in digests and is_run and path.is_file():
                    digests[word] = _digest_file(path)
    return digests


def _digest_file(path: Path) -> str:
    found = path.stat()
    is_large = found.st_size > _MOST_READ_BYTES
    content = f"{found.st_size} {found.st_mtime_ns}".encode() if is_large else path.read_bytes()
    return hashlib.sha256(content).hexdigest()


def spec(trial: Trial, experiment: Experiment, working_directory: str) -> RunSpec:
    """Return the request to an agent."""
    asked = RunSpec()
    asked.CopyFrom(trial.cell.asked)
    asked.environment, asked.image = split_name(trial.cell.environment)
    asked.experiment = experiment.name if trial.repeat > 0 else f"{experiment.name}{WARM_UP}"
    asked.repeats = 1
    asked.first_repeat = trial.repeat if trial.repeat > 0 else trial.repeat + experiment.warm_up
    asked.working_directory = working_directory if asked.command or asked.environment == "bare" else ""
    asked.labels.update({**experiment.labels, **asked.labels})
    if experiment.until is not None:
        asked.labels[RULE_LABEL] = write_rule(experiment.until, looks(experiment))
    return asked
