"""Command lines of programs: their arguments by name, and those in which runs differ."""

import re
import shlex
import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from pathlib import PurePath

from gpuagent_collector.present.shortening import shorten
from gpuagent_common.text import differing_words, harmless

Command = tuple[str, ...]

# The values of each named argument in their order, and the lone words in theirs.
Identity = tuple[frozenset[tuple[str, tuple[str, ...]]], tuple[str, ...]]

# Stands for an argument that a command does not have, or for a switch without a value beside values.
NOT_GIVEN, GIVEN = "not given", "given"

# Arguments of torchrun for the rendezvous of a run's nodes, and for the rank of this one.
_MEETING = re.compile(r"-*(rdzv[-_](id|endpoint)|master[-_](addr|port)|node[-_]rank)")

_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_+][\w.+/-]*)=(.*)", re.DOTALL)
_INTERPRETER = re.compile(r"(ba|da|k|z)?sh|python[\d.]*")
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?")
_OPTION = re.compile(r"-{1,2}[A-Za-z?].*", re.DOTALL)

# Of each cell, as `gpuagent bench` makes them.
USUAL_REPEATS = 7

_MOST_CHARACTERS = 40
_MOST_VALUES = 3


def parse_arguments(command: Sequence[str]) -> dict[str, str]:
    """Return the value of each argument: of `--lr 0.1`, `--lr=0.1` and `lr=0.1`; '' for a lone word or switch."""
    found: dict[str, str] = {}
    for name, given in _split(command):
        # A lone word that occurs again counts as its value.
        value = (name if name in found else "") if given is None else given
        found[name] = f"{found[name]} {value}".strip() if name in found else value
    return found


def _split(command: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the arguments in their order, without those of a rendezvous; None: a lone word or switch."""
    for name, value, _ in _read_words(command):
        if not _MEETING.fullmatch(name):
            yield name, value


def _read_words(command: Sequence[str]) -> Iterator[tuple[str, str | None, tuple[str, ...]]]:
    """Yield each argument with its value and its words; None: a lone word or switch."""
    words = list(command)
    while words:
        word = words.pop(0)
        if assigned := _ASSIGNMENT.fullmatch(word):
            yield assigned[1], assigned[2], (word,)
        elif _OPTION.fullmatch(word) and words and not _OPTION.fullmatch(words[0]):
            value = words.pop(0)
            yield word, value, (word, value)
        else:
            yield word, None, (word,)


def set_argument(command: Command, name: str, source: Command) -> Command:
    """Return the command with all arguments of a name as another command has them, in their first place or last."""
    wanted = [word for each, _, words in _read_words(source) if each == name for word in words]
    changed: list[str] = []
    is_set = False
    for each, _, words in _read_words(command):
        if each != name:
            changed += words
        elif not is_set:
            changed += wanted
            is_set = True
    return tuple(changed if is_set else [*changed, *wanted])


def find_argument(command: Sequence[str], name: str) -> str:
    """Return the value of an argument; its name may lack the hyphens."""
    wanted = name.lstrip("-")
    values = [value for each, value in parse_arguments(command).items() if each.lstrip("-") == wanted]
    return (values[-1] or GIVEN) if values else NOT_GIVEN


def name_commands(commands: Iterable[Command], counted: Collection[Command] = ()) -> Mapping[Command, str]:
    """Return a name for each command: the arguments in which they differ, with all paths alike.

    Commands have one name exactly where `identify_command` takes them for the same. The others get no longer name by
    one that is not `counted`, such as that of a failed run; nothing counted: all are.
    """
    # The first command of each identity, and its arguments.
    firsts: dict[Identity, Command] = {}
    identities = {command: identify_command(command) for command in commands}
    for command, identity in identities.items():
        firsts.setdefault(identity, command)
    parsed = {identity: _without_paths(parse_arguments(command)) for identity, command in firsts.items()}
    naming = {identities[command] for command in counted} or set(parsed)
    every = [arguments for identity, arguments in parsed.items() if identity in naming]
    shared = {item for item in (every[0].items() if every else ()) if all(item in each.items() for each in every)}
    differing = list(dict.fromkeys(name for each in every for name in each if (name, each[name]) not in shared))
    # The variable says it, unless nothing else differs.
    launchers = {"env"} if differing != ["env"] else set()
    # Beside a command with one argument more, that without it has no name but its own.
    is_short = all(len(shlex.join(firsts[identity])) <= _MOST_CHARACTERS for identity in naming)
    is_whole = is_short and any(not set(parsed[identity].items()) - shared for identity in naming)
    # Long lines of a shell are named by the words in which they differ.
    lines = [firsts[identity][2] for identity in naming if _is_shell_line(firsts[identity])]
    is_long = any(len(line) > _MOST_CHARACTERS for line in lines)
    line_names = dict(zip(lines, differing_words(lines) if is_long else lines, strict=True))
    names = {}
    for identity, arguments in parsed.items():
        differ = [(name, value) for name, value in arguments.items() if (name, value) not in shared]
        first = firsts[identity]
        own = [_write_own(first, name, value) for name, value in differ if name not in launchers]
        if _is_shell_line(first):
            own = [line_names.get(first[2], first[2])]
        whole = shlex.join(first)
        is_number = len(whole) <= _MOST_CHARACTERS and all(map(_NUMBER.fullmatch, own))
        if (own and is_number) or (is_whole and differing and not _is_program_line(first)):
            own = [whole]  # a number says little without its program
        without = f"without {' '.join(name for name in differing if name not in launchers)}" if differing else ""
        names[identity] = " ".join(own) or without or " ".join(firsts[identity])
    taken, of_counted = Counter(names.values()), Counter(names[identity] for identity in naming)
    for identity, name in names.items():
        # The order of words and the borders between them are in no name.
        if of_counted[name] > 1 or (taken[name] > 1 and identity not in naming):
            names[identity] = shlex.join(firsts[identity])
    return {command: names[identity] for command, identity in identities.items()}


def _write_own(command: Command, name: str, value: str) -> str:
    """Return an argument in which a command differs from others, as it was given."""
    if name == "-c" and _is_program_line(command):
        return value
    is_assignment = f"{name}={value}" in command and not name.startswith("-")
    return f"{name}={value}" if is_assignment else f"{name} {value}".strip()


def _is_program_line(command: Command) -> bool:
    """Return whether a command is a shell or an interpreter whose program follows -c."""
    return command[1:2] == ("-c",) and bool(_INTERPRETER.fullmatch(PurePath(command[0]).name))


def _is_shell_line(command: Command) -> bool:
    """Return whether a command is a line that `gpuagent bench` gives to a shell."""
    return command[:2] == ("sh", "-c") and len(command) == 3


@lru_cache(maxsize=4096)  # thousands of runs have few commands
def identify_command(command: Command) -> Identity:
    """Return what is equal for commands with equal arguments, the named ones in any order, and with all paths alike."""
    values: dict[str, list[str]] = defaultdict(list)
    words = []
    for name, value in _split(command):
        if value is None and not _OPTION.fullmatch(name):
            words.append(_alike(name, ""))
        else:
            values[_alike(name, "")].append("" if value is None else _alike(value, _PATH))
    return frozenset((name, tuple(given)) for name, given in values.items()), tuple(words)


def without_arguments(identity: Identity, names: Collection[str]) -> Identity:
    """Return the identity of a command without arguments of these names, which have no hyphens."""
    named, words = identity
    return frozenset((name, values) for name, values in named if name.lstrip("-") not in names), words


# After the interpreter and -m.
SUITE = ("gpuagent_workloads", "run")
_MOST_OF_PROGRAM = 80
# More commands have no room on a line, unless the values of their options make them.
_MOST_COMMANDS = 4


def repeat_command(
    commands: Sequence[Command],
    workload: str,
    repeats: int | None = None,
    options: Sequence[str] = (),
    input_file: str | None = None,
) -> str | None:
    """Return the command that makes new runs of commands in turns; None: it would be too long.

    `repeats` of each; None: as many as are usual. `options` are those of the agent and of all runs. `input_file` is
    their standard input.
    """
    commands = list(dict.fromkeys(commands))
    rounds = ["--rounds", str(repeats)] if repeats else []
    if any(command[2:4] == SUITE or not command for command in commands):
        given = commands[0][4:] or (workload,)
        return harmless(shlex.join(["gpuagent", "bench", *rounds, *given, *options]))
    if len(commands) == 1 and not input_file:
        return harmless(shlex.join(["gpuagent", "bench", *rounds, *options, "--", *commands[0]]))
    words = None
    if len(commands) <= _MOST_COMMANDS:
        # Of a line with a shell's syntax, `gpuagent bench` makes `sh -c LINE`.
        words = [each[2] if _is_shell_line(each) else shlex.join(each) for each in commands]
        if len(set(words)) < len(words):
            words = list(map(shlex.join, commands))
    words = _vary(commands) or words
    if words is None:
        return None
    line = shlex.join(["gpuagent", "bench", *rounds, *options, *words])
    return harmless(f"{line} < {shlex.quote(input_file)}" if input_file else line)


def record_command(command: Command, metric: str) -> str:
    """Return the command that runs a program anew and records a metric that it prints; a long program is cut."""
    pattern = shlex.quote(f"step {{step}} {metric} {{{metric}}}")
    program = textwrap.shorten(shlex.join(command), _MOST_OF_PROGRAM, placeholder=" …")
    return harmless(f"gpuagent bench --pattern {pattern} -- {program}")


def _vary(commands: Sequence[Command]) -> list[str] | None:
    """Return the words of a bench whose options make just these commands; None: there are none.

    A bench adds its options at the end, so they may not be those of a launcher, before a program's name.
    """
    parsed = [parse_arguments(command) for command in commands]
    names = [name for name in parsed[0] if len({each.get(name) for each in parsed}) > 1]
    values = {name: sorted({each.get(name, "") for each in parsed}, key=in_order) for name in names}
    bases = set()
    for command, arguments in zip(commands, parsed, strict=True):
        words = " ".join(map(shlex.quote, command))
        for name in names:
            words = words.replace(f" {name} {shlex.quote(arguments.get(name, ''))}", "", 1)
        bases.add(words)
    is_named = all(re.fullmatch(r"-[A-Za-z]|--[A-Za-z][\w-]+", name) for name in names)
    is_plain = all(re.fullmatch(r"[\w.+-]+", value) for of_one in values.values() for value in of_one)
    combinations = prod(map(len, values.values()))
    if not names or len(bases) > 1 or not is_named or not is_plain or combinations != len(commands):
        return None
    # No word that belongs to no option may follow one of them.
    for command, name in product(commands, names):
        start = next((at for at, word in enumerate(command) if word.partition("=")[0] == name), len(command))
        for before, word in pairwise(command[start:]):
            if not word.startswith("-") and (not before.startswith("-") or "=" in before):
                return None
    options = [word for name in names for word in ("--vary", f"{name.lstrip('-')}={','.join(values[name])}")]
    return [*options, "--", *shlex.split(bases.pop())]


_DIGITS = re.compile(r"((?<!\w)-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\d+)")


def in_order(value: str) -> list[tuple[bool, float, str]]:
    """Return the key by which values are sorted: numbers as numbers, within texts too."""
    parts = _DIGITS.split(value)
    return [(not number % 2, float(part) if number % 2 else 0.0, part) for number, part in enumerate(parts) if part]


def differing_arguments(sides: Sequence[Iterable[Command]]) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Return the arguments in which commands differ but for paths, each with its different values on each side.

    Lone words have no name and are together, under ''; so are all of them where only their order differs.
    """
    sides = [list(dict.fromkeys(side)) for side in sides]
    parsed = [[_without_paths(parse_arguments(command)) for command in side] for side in sides]
    # Of each side; None: a command without the argument. Thousands of commands can have words of their own.
    values: dict[str, list[set[str | None]]] = defaultdict(lambda: [set() for _ in parsed])
    having: Counter[tuple[str, int]] = Counter()
    for index, side in enumerate(parsed):
        for arguments in side:
            for name, value in arguments.items():
                values[name][index].add(value)
                having[name, index] += 1
    for name, of_sides in values.items():
        for index, found_values in enumerate(of_sides):
            if having[name, index] < len(parsed[index]):
                found_values.add(None)
    differing = {name: of_sides for name, of_sides in values.items() if len(set[str | None]().union(*of_sides)) > 1}
    # Lone words, with their places.
    lone = {name: at for at, (name, of_sides) in enumerate(differing.items()) if not any(map(any, of_sides))}
    words = [[" ".join(sorted(lone.keys() & each.keys(), key=lone.__getitem__)) for each in side] for side in parsed]
    if not lone:
        words = [[" ".join(identify_command(command)[1]) for command in side] for side in sides]
    found = []
    if lone or len({order for side in words for order in side}) > 1:
        found.append(("", tuple(_distinct(side) for side in words)))
    for name in (name for name in differing if name not in lone):
        given = ((value if value is None else value or GIVEN for value in of_side) for of_side in differing[name])
        found.append((name, tuple(map(_distinct, given))))
    return found


def write_argument(name: str, values: Sequence[Sequence[str]]) -> str:
    """Return an argument with its values on each side: --dtype bfloat16 against float32."""
    short = shorten_values([value for of_side in values for value in of_side])
    written = [write_values([short[value] for value in of_side]) for of_side in values]
    return f"{name} {' against '.join(written)}".lstrip()


def shorten_values(values: Sequence[str]) -> Mapping[str, str]:
    """Return values for one line, each with the part in which it differs from the others."""
    return dict(zip(values, shorten(values, _MOST_CHARACTERS), strict=True))


def write_values(values: Sequence[str]) -> str:
    """Return the values of one side."""
    return ", ".join(values) if len(values) <= _MOST_VALUES else f"{len(values)} values"


def _distinct(values: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({value or NOT_GIVEN for value in values}))


_PATH = "(path)"


def _without_paths(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments with places replaced: data and environments are elsewhere on each node."""
    return {_alike(name, ""): _alike(value, _PATH) for name, value in arguments.items()}


def _alike(text: str, path: str) -> str:
    """Return a text that is no path, and of a path `path` or, where that is empty, its last part."""
    return (path or text.rpartition("/")[2]) if is_path(text) else text


def is_path(value: object) -> bool:
    """Return whether a value is an absolute or explicitly relative path; a text with blanks is a command line."""
    return isinstance(value, str) and value.startswith(("/", "~", "./", "../")) and " " not in value
