"""Experiment files: YAML that fits schema.json. Mistakes are reported with line and column."""

import difflib
import functools
import importlib.util
import itertools
import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from gpuagent.environments import find_environment
from gpuagent.experiment.places import mark, place, read_yaml
from gpuagent_common.connection import MAX_EXPERIMENT_BYTES
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import make_limits, read_limits
from gpuagent_common.program_name import name_program
from gpuagent_proto.v1.run_pb2 import RunSpec

# More than a node makes in a day at one a second: a list of values too many, not an experiment.
MAX_RUNS = 100_000

SCHEMA = Path(__file__).with_name("schema.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoolDown:
    """The wait before each run.

    Attributes:
        seconds: waited in any case.
        celsius_above_start: the most by which a GPU may be warmer than before the first run; None: does not matter.
        limit_seconds: the longest wait.
        celsius: the warmest that a GPU may be; None: does not matter.
    """

    seconds: float
    celsius_above_start: float | None
    limit_seconds: float
    celsius: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Runs that differ only by chance: all ask for the same, as the wire does.

    Attributes:
        once: whether it is only in the first repeat.
        words_apart: for display, words of the command that others of this name lack.
    """

    asked: RunSpec
    once: bool
    words_apart: tuple[str, ...] = field(default=(), compare=False)

    @property
    def key(self) -> str:
        """The cell's identity, the same in every process."""
        return f"{self.asked.SerializeToString(deterministic=True).hex()}{' once' * self.once}"

    @property
    def environment(self) -> str:
        """Its environment, with the image as in the file."""
        return self.asked.environment + (f":{self.asked.image}" if self.asked.image else "")

    @property
    def name(self) -> str:
        """The name by which its runs are compared."""
        return self.asked.workload or self.asked.name or name_program(self.asked.command)

    def describe(self) -> str:
        """Return the cell in one line."""
        has_name = self.asked.workload or self.asked.name
        program = " ".join(self._program()) if has_name else shlex.join(self.asked.command)
        return " · ".join(
            [" ".join([program, *(f"{key}={value}" for key, value in self._parameters())]), *self.place()]
        )

    def parts(self) -> list[str]:
        """Return its properties that can differ from those of other cells, each in words."""
        return [*self._program(), *(f"--{key} {value}" for key, value in self._parameters()), *self.place()]

    def place(self) -> list[str]:
        """Return its environment, and what is beside it or limits it."""
        beside = [f"with {'+'.join(self.asked.interference)}"] if self.asked.interference else []
        limits = [words] if (words := str(read_limits(self.asked))) != "none" else []
        labels = [f"{key}: {value}" for key, value in sorted(self.asked.labels.items())]
        return [self.environment, *beside, *limits, *labels]

    def _program(self) -> list[str]:
        return [self.name, *([" ".join(self.words_apart)] if self.words_apart else [])]

    def _parameters(self) -> list[tuple[str, str]]:
        # A server's command would fill a line; its name says which it is.
        return sorted((key, value) for key, value in self.asked.parameters.items() if key != "serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A whole file; schema.json describes each field."""

    name: str
    question: str | None
    metric: str
    repeats: int
    seed: int
    warm_up: int
    cells: tuple[Cell, ...]
    labels: Mapping[str, str]
    cool_down: CoolDown
    # Limits of the whole experiment; None: no limit.
    most_hours: float | None
    most_kilowatt_hours: float | None
    failures: int
    answers: tuple[str, ...]
    # Width of intervals in percent at which the experiment may stop; None: it makes all repeats.
    until: float | None = None


def studies() -> list[Path]:
    """Return the experiment files of the workloads package; empty where that is not installed."""
    found = importlib.util.find_spec("gpuagent_workloads")
    folders = [Path(folder) / "experiments" for folder in (found.submodule_search_locations or ())] if found else []
    return sorted(path for folder in folders for path in folder.glob("*.yaml"))


def find_file(given: Path) -> Path:
    """Return the file of an experiment: one of the user's, or a study by its name.

    Raises MisuseError: neither exists.
    """
    if given.exists():
        return given
    known = {path.stem: path for path in studies()}
    if str(given) in known:
        return known[str(given)]
    close = difflib.get_close_matches(str(given), known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"studies: {', '.join(known)}"
    raise MisuseError(f"there is no file {given}, and no study of that name; {hint}")


def read_experiment(path: Path) -> Experiment:
    """Return the experiment in a file.

    Raises MisuseError: the file cannot be read, is no YAML, or does not fit the schema; names the place.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from error
    return parse_experiment(content, str(path))


def parse_experiment(content: bytes, name: str) -> Experiment:
    """Return the experiment in the content of a file; `name` is the file's, for messages.

    Raises MisuseError: the content is too large, no YAML, or does not fit the schema; names the place.
    """
    if len(content) > MAX_EXPERIMENT_BYTES:
        raise MisuseError(f"{name} is no experiment: it has more than {MAX_EXPERIMENT_BYTES} bytes")
    data, node = read_yaml(content, name)
    return _experiment(_fill_defaults(data, node, name))


@functools.cache
def _validator() -> Callable[[Any], Any]:
    import fastjsonschema

    validator: Callable[[Any], Any] = fastjsonschema.compile(json.loads(SCHEMA.read_text()))
    return validator


def _fill_defaults(data: Any, node: Any, name: str) -> Mapping[str, Any]:
    """Return the data with the schema's defaults filled in. Raises MisuseError for a mistake, with its place."""
    import fastjsonschema

    def refuse(steps: Sequence[str], words: str) -> NoReturn:
        raise MisuseError(f"{name}{place(mark(node, steps))}: {words}")

    try:
        checked: Mapping[str, Any] = _validator()(data)
    except fastjsonschema.JsonSchemaValueException as error:
        steps = [str(step) for step in error.path[1:]]
        if error.rule != "additionalProperties" or "properties" not in error.definition:
            unknown = []
        else:
            unknown = [key for key in map(str, error.value) if key not in error.definition["properties"]][:1]
        refuse([*steps, *unknown], _words(error, steps, unknown))
    for index, entry in enumerate(checked["workloads"]):
        if found := _misuse_in_entry(entry):
            refuse(["workloads", str(index), *found[0]], found[1])
    if steps := _infinite_number(checked):
        refuse(steps, f"{'.'.join(steps)} must be finite")
    answers = ((["answer", str(index)], words) for index, words in enumerate(_answers(checked)))
    options = [(["options", name], words) for name, words in checked.get("options", {}).items()]
    for index, entry in enumerate(checked["workloads"]):
        steps = ["workloads", str(index), "options"]
        options += [([*steps, name], words) for name, words in entry.get("options", {}).items()]
    for steps, words in (*answers, *options):
        if misuse := _misuse_in_words(steps, words):
            refuse(steps, misuse)
    return checked


def _misuse_in_entry(entry: Mapping[str, Any]) -> tuple[list[str], str] | None:
    """Return the place within an entry of `workloads` and what is wrong there; None: nothing."""
    of_other = {"parameters"} if "command" in entry else {"name", "arguments", "input"}
    if ("workload" in entry) == ("command" in entry) or of_other & entry.keys():
        return [], "give either a workload with parameters, or a command with a name, arguments and input"
    servers = entry.get("serve", {})
    if servers and "command" in entry:
        return ["serve"], "serve is for the workload serve-load, not for a command"
    if isinstance(servers, list) and len({one.get("name") for one in servers} - {None}) < len(servers):
        return ["serve"], "give each server a name of its own, to compare them by"
    return None


def _misuse_in_words(steps: Sequence[str], words: str) -> str | None:
    try:
        if steps[-2] == "options":
            find_environment(steps[-1])
        shlex.split(words)
    except MisuseError as error:
        return str(error)
    except ValueError as error:
        return f"cannot read {'.'.join(steps)}: {error}"
    return None


def _answers(data: Mapping[str, Any]) -> list[str]:
    given = data.get("answer", ())
    return [command for each in given for command in (each.values() if isinstance(each, Mapping) else (each,))]


def _infinite_number(data: Any) -> list[str]:
    """Return the steps to the first number that is not finite (.inf, .nan); a limit of it would never end a run."""
    children = data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list) else ()
    for key, value in children:
        if isinstance(value, float) and not math.isfinite(value):
            return [str(key)]
        if steps := _infinite_number(value):
            return [str(key), *steps]
    return []


# JSON Schema's types in words.
_KINDS = {
    "object": "a mapping of names to values",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "empty",
}


def _words(error: Any, steps: Sequence[str], unknown: Sequence[str]) -> str:
    what = ".".join(steps) or "the file"
    if unknown:
        known = error.definition["properties"]
        close = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        return f"there is no {unknown[0]!r} here; {hint}"
    if error.rule == "anyOf" and "description" not in error.definition:
        return f"{what} cannot be {error.value!r}"
    if steps[:1] == ["answer"] and (meant := _closest_answer(error.value)):
        return f"{what}: no command {meant[0]!r:.40}; did you mean {meant[1]}?"
    if error.rule in ("anyOf", "pattern"):
        return f"{what} cannot be {error.value!r}: {error.definition['description']}"
    if error.rule == "required":
        return f"{what} lacks {', '.join(key for key in error.rule_definition if key not in error.value)}"
    if error.rule == "type":
        kinds = error.rule_definition if isinstance(error.rule_definition, list) else [error.rule_definition]
        example = ", such as [python3, train.py]" if steps[-1:] == ["command"] and kinds == ["array"] else ""
        return f"{what} must be {' or '.join(_KINDS[kind] for kind in kinds)}{example}"
    return f"{what} {error.message.partition(' ')[2]}"


def _closest_answer(value: Any) -> tuple[str, str] | None:
    """Return the first word of an unknown answer, and the command that was probably meant; None: none is alike."""
    text = value
    if isinstance(value, Mapping):
        text = next(iter(value.values())) if len(value) == 1 else ""
    word, *_ = [*str(text).split(), ""]
    commands = re.findall(r"\w+", json.loads(SCHEMA.read_text())["definitions"]["answer"]["pattern"])
    close = difflib.get_close_matches(word, commands, n=1)
    return (word, close[0]) if close and word not in commands else None


def _experiment(data: Mapping[str, Any]) -> Experiment:
    cool_down, budget = data.get("cool_down", {}), data.get("budget", {})
    return Experiment(
        name=data["name"],
        question=data.get("question"),
        metric=data["metric"],
        repeats=data["repeats"],
        seed=data["seed"],
        warm_up=data["warm_up"],
        cells=distinct(cell for entry in data["workloads"] for cell in _cells(entry, data)),
        labels=_labels(data),
        cool_down=CoolDown(
            seconds=cool_down.get("seconds", 0.0),
            celsius_above_start=cool_down.get("celsius_above_start"),
            limit_seconds=cool_down.get("limit_seconds", 300.0),
            celsius=float(data["settle"].removesuffix("C")) if "settle" in data else None,
        ),
        most_hours=budget.get("hours"),
        most_kilowatt_hours=budget.get("kilowatt_hours"),
        failures=data["failures"],
        answers=tuple(_answers(data)),
        until=parse_width(data["until"]) if "until" in data else None,
    )


def parse_width(text: str) -> float:
    """Return the percentage of a text such as 2%. Raises MisuseError where it is no percentage above 0."""
    try:
        width = float(text.removesuffix("%"))
    except ValueError:
        width = math.nan
    if not 0 < width < 100:
        raise MisuseError(f"the width of an interval is a percentage such as 2%, not {text!r}")
    return width


def _labels(data: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in data.get("labels", {}).items()}


# What an entry says of a run as the wire does, and for all of its runs.
_AS_ASKED = {field.name for field in RunSpec.DESCRIPTOR.fields} - {"command", "parameters", "options", "labels"}
_OF_SERVERS = {"name": "server", "command": "serve", "ready": "ready", "timeout_seconds": "ready-timeout"}


def _cells(entry: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[Cell]:
    """Yield the cells of an entry of `workloads`: each of its values with each of the others."""
    same = {key: entry[key] for key in _AS_ASKED & entry.keys()}
    if "timeout_seconds" in defaults:
        same.setdefault("timeout_seconds", defaults["timeout_seconds"])
    if "input" in entry:
        same["input"] = str(Path(entry["input"]).absolute())
    parameters = {name: _values(value) for name, value in entry.get("parameters", {}).items()}
    given = entry.get("serve")
    servers = [
        {_OF_SERVERS[key]: _server_text(value) for key, value in server.items()}
        for server in (given if isinstance(given, list) else [given or {}])
    ]
    options = {**defaults.get("options", {}), **entry.get("options", {})}
    varied: list[Sequence[Any]] = [
        *parameters.values(),
        *(_argument_words(name, value) for name, value in entry.get("arguments", {}).items()),
        servers,
        entry.get("environments", defaults.get("environments", ["bare"])),
        entry.get("with", defaults.get("with", ["none"])),
        entry.get("limits", defaults.get("limits", ["none"])),
    ]
    if (number := math.prod(map(len, varied))) > MAX_RUNS:
        raise MisuseError(f"these are {number:,} runs; an experiment has {MAX_RUNS:,} at most")
    for chosen in itertools.product(*varied):
        *first, server, environment, beside, limits = chosen
        kind, _, image = environment.partition(":")
        asked = RunSpec(
            **same,
            command=map(str, entry.get("command", ())),
            parameters={**dict(zip(parameters, first, strict=False)), **server},
            environment=kind,
            image=image,
            interference=[] if beside == "none" else [beside] if isinstance(beside, str) else beside,
            options=shlex.split(options.get(kind, "")),
            labels=_labels(entry),
        )
        for words in first[len(parameters) :]:
            asked.command.extend(words)
        if limits != "none":
            make_limits(limits.get("cpus"), limits.get("memory"), limits.get("change", ())).write(asked)
        yield Cell(asked=asked, once=entry["once"])


def _server_text(value: Any) -> str:
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)


def _argument_words(name: str, value: Any) -> list[list[str]]:
    """Return the words of an argument with each of its values: a switch is there alone, or not there."""
    values = value if isinstance(value, list) else [value]
    return [([name] if one else []) if isinstance(one, bool) else [name, str(one)] for one in values]


def _values(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in values]


def distinct(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Return the cells, each once, with the words in which commands of one name differ.

    Raises MisuseError: there are too many.
    """
    every = list({cell.key: cell for cell in itertools.islice(cells, MAX_RUNS + 1)}.values())
    if len(every) > MAX_RUNS:
        raise MisuseError(f"these are more than {MAX_RUNS:,} runs; an experiment has {MAX_RUNS:,} at most")
    # Arguments that all commands of a name have.
    shared: dict[str, set[tuple[str, ...]]] = {}
    for cell in every:
        if arguments := set(_arguments(cell.asked.command)):
            shared[cell.asked.name] = shared.get(cell.asked.name, arguments) & arguments
    made: list[Cell] = []
    for cell in every:
        apart = [each for each in _arguments(cell.asked.command) if each not in shared[cell.asked.name]]
        made.append(replace(cell, words_apart=tuple(itertools.chain.from_iterable(apart))))
    return tuple(made)


def _arguments(command: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the arguments of a command, each with its words: an option comes with its value."""
    found: list[tuple[str, ...]] = []
    for word in command:
        if found and len(found[-1]) == 1 and found[-1][0].startswith("-") and not word.startswith("-"):
            found[-1] += (word,)
        else:
            found.append((word,))
    return found
