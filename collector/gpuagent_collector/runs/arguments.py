"""Command lines of programs: their arguments by name, and those in which runs differ."""

import re
from collections.abc import Iterable, Mapping, Sequence

Command = tuple[str, ...]

# Stands for an argument that a command does not have, or for a switch without a value beside values.
NOT_GIVEN, GIVEN = "not given", "given"

# Arguments of torchrun for the rendezvous of a run's nodes, and for the rank of this one.
_MEETING = re.compile(r"-*(rdzv[-_](id|endpoint)|master[-_](addr|port)|node[-_]rank)")

_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_+][\w.+/-]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"-{1,2}[A-Za-z?].*", re.DOTALL)

_MOST_CHARACTERS = 40
_MOST_VALUES = 3


def parse_arguments(command: Sequence[str]) -> dict[str, str]:
    """Return the value of each argument: of `--lr 0.1`, `--lr=0.1` and `lr=0.1`; '' for a lone word or switch."""
    found: dict[str, str] = {}
    words = list(command)
    while words:
        word = words.pop(0)
        if assigned := _ASSIGNMENT.fullmatch(word):
            name, value = assigned[1], assigned[2]
        elif _OPTION.fullmatch(word) and words and not _OPTION.fullmatch(words[0]):
            name, value = word, words.pop(0)
        else:
            # A lone word that occurs again counts as its value.
            name, value = word, word if word in found else ""
        found[name] = f"{found[name]} {value}".strip() if name in found else value
    return {name: value for name, value in found.items() if not _MEETING.fullmatch(name)}


def find_argument(command: Sequence[str], name: str) -> str:
    """Return the value of an argument; its name may lack the hyphens."""
    wanted = name.lstrip("-")
    values = [value for each, value in parse_arguments(command).items() if each.lstrip("-") == wanted]
    return (values[-1] or GIVEN) if values else NOT_GIVEN


def name_commands(commands: Iterable[Command]) -> Mapping[Command, str]:
    """Return a short name for each command: the arguments in which they differ, with all paths alike."""
    parsed = {command: _without_paths(parse_arguments(command)) for command in commands}
    every = list(parsed.values())
    shared = {item for item in (every[0].items() if every else ()) if all(item in each.items() for each in every)}
    differing = list(dict.fromkeys(name for each in every for name in each if (name, each[name]) not in shared))
    names = {}
    for command, arguments in parsed.items():
        own = [f"{name} {value}".strip() for name, value in arguments.items() if (name, value) not in shared]
        names[command] = _cut(" ".join(own) or (f"without {' '.join(differing)}" if differing else " ".join(command)))
    return names


def identify_command(command: Command) -> frozenset[tuple[str, str]]:
    """Return what is equal for commands with equal arguments, in any order and with all paths alike."""
    return frozenset(_without_paths(parse_arguments(command)).items())


def differing_arguments(sides: Sequence[Iterable[Command]]) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Return the arguments in which commands differ, each with its different values on each side.

    Lone words have no name and are together, under ''.
    """
    parsed = [[parse_arguments(command) for command in dict.fromkeys(side)] for side in sides]
    every = [each for side in parsed for each in side]
    names = dict.fromkeys(name for each in every for name in each)
    differing = [name for name in names if len({each.get(name) for each in every}) > 1]
    lone = [name for name in differing if not any(each.get(name) for each in every)]
    found = []
    if lone:
        words = [[" ".join(name for name in lone if name in each) for each in side] for side in parsed]
        found.append(("", tuple(_distinct(side) for side in words)))
    for name in (name for name in differing if name not in lone):
        values = [[_value(each, name) for each in side] for side in parsed]
        found.append((name, tuple(_distinct(side) for side in values)))
    return found


def write_argument(name: str, values: Sequence[Sequence[str]]) -> str:
    """Return an argument with its values on each side: --dtype bfloat16 | float32."""
    return f"{name} {' | '.join(map(write_values, values))}".lstrip()


def write_values(values: Sequence[str]) -> str:
    """Return the values of one side."""
    return ", ".join(map(_cut, values)) if len(values) <= _MOST_VALUES else f"{len(values)} values"


def _value(arguments: Mapping[str, str], name: str) -> str:
    return (arguments[name] or GIVEN) if name in arguments else NOT_GIVEN


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({value or NOT_GIVEN for value in values}))


def _cut(text: str) -> str:
    return f"{text[: _MOST_CHARACTERS - 1]}…" if len(text) > _MOST_CHARACTERS else text


def _without_paths(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments with places replaced: data and environments are elsewhere on each node."""
    return {
        name.rpartition("/")[2] if is_path(name) else name: "(path)" if is_path(value) else value
        for name, value in arguments.items()
    }


def is_path(value: object) -> bool:
    """Return whether a value is an absolute or explicitly relative path."""
    return isinstance(value, str) and value.startswith(("/", "~", "./", "../"))
