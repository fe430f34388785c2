"""The experiment that a command line of `gpuagent bench` stands for, as the content of an experiment file."""

import difflib
import hashlib
import itertools
import json
import math
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gpuagent.experiment.file import parse_width
from gpuagent_common.cli import parse_pairs, word_parameters
from gpuagent_common.errors import MisuseError
from gpuagent_common.naming import MAX_NAME_CHARACTERS
from gpuagent_common.program_name import check_program_name, is_step_size, name_programs, read_options
from gpuagent_common.run_spec import count_items

# Cells of one command line: more would be a mistake, such as a brace of the program's own.
_MOST_CELLS = 256

ROUNDS = 7
# With --until: the planned looks are after 8, 12, 18 and 27 of them.
_ROUNDS_UNTIL = 40

# A quotation, an escaped character, or braces as a shell reads them: {a,b} and {1..4}, not ${a}.
_BRACES = re.compile(
    r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|\$\{|\{([^{}\s'"]*,[^{}\s'"]*|-?\d+\.\.-?\d+(?:\.\.-?\d+)?)\}""",
    re.DOTALL,
)
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_DECIMAL_RANGE = re.compile(r"(?=.*\d\.\d)-?[\d.]+?\.\.-?\d[\d.]*")

# Characters for private use stand for braces that have been read, within others.
_FIRST_PRIVATE = 0x10_0000
_PRIVATE = re.compile(r"([\U00100000-\U0010fffd])")

# What only a shell understands, outside of quotations; within double ones $ and ` are left.
_QUOTED = re.compile(r"""'[^']*'|\\.|"((?:\\.|[^"\\])*)\"""", re.DOTALL)
_OF_SHELLS = re.compile(r"[|&;<>()$`*?\[\]#~!\n]|^\s*\w+=")
# What ends a program's arguments, so that words at the end of the line are no longer its own.
_ENDS_ARGUMENTS = re.compile(r"[|&;<>()#\n]")

_EXPORTS = ("markdown", "json", "csv", "asciidoc", "orgmode")
# Options of hyperfine and `gpuagent run`, and what does the same here.
_KIN = {
    **dict.fromkeys(("--runs", "-r", "--min-runs", "-m", "--max-runs", "-M"), "--rounds N, or --until WIDTH"),
    **dict.fromkeys(("--repeat", "--repeats"), "--rounds N"),
    **dict.fromkeys(("--warmup", "-w"), "--warm-up N"),
    **dict.fromkeys(("--parameter-list", "-L"), "--vary NAME=A,B"),
    **dict.fromkeys(("--parameter-scan", "-P", "--parameter-step-size", "-D"), "--vary NAME=1..9..2, or NAME=0.1,0.2"),
    **dict.fromkeys([f"--export-{name}" for name in _EXPORTS], "-o FILE.md, .json or .csv"),
    **dict.fromkeys(("--style", "--sort", "--time-unit", "-u"), "-o FILE.csv, which has all figures in seconds"),
    "-p": "--prepare COMMAND",
    **dict.fromkeys(("--setup", "-s", "--conclude", "-C"), "--prepare COMMAND, which runs before each run"),
    **dict.fromkeys(("--cleanup", "-c"), "--prepare COMMAND, which runs before each run"),
    **dict.fromkeys(
        ("--reference", "--reference-name"), "one more COMMAND, and `collector compare --by command --baseline COMMAND`"
    ),
    "--show-output": "`collector logs RUN` afterwards",
    "--input": "< FILE",
    **dict.fromkeys(("--ignore-failure", "-i"), "`COMMAND || true`"),
    **dict.fromkeys(("--command-name", "-n"), "--name NAME"),
}
_SHELL = ("--shell", "-S", "-N")

# Of runs of commands that differ in paths alone.
_LABEL = "command"

# At the end of a name in a store.
_NAME_CHARACTERS = 40


def expand_braces(text: str) -> list[str]:
    r"""Return a text with each of the alternatives in its braces, which quotations and `\{` protect.

    Raises:
        MisuseError: there are too many, or a character of the text is for private use.
    """
    if found := _PRIVATE.search(text):
        raise MisuseError(f"a command has no character for private use: U+{ord(found[0]):X}")
    groups: list[list[str]] = []

    def expand(part: str) -> list[str]:
        pieces = _PRIVATE.split(part)
        factors = [[piece] if at % 2 == 0 else groups[ord(piece) - _FIRST_PRIVATE] for at, piece in enumerate(pieces)]
        _check_number(map(len, factors))
        return ["".join(chosen) for chosen in itertools.product(*factors)]

    def keep(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        groups.append([each for one in _alternatives(match[1]) for each in expand(one)])
        return chr(_FIRST_PRIVATE + len(groups) - 1)

    before = None
    while before != text:  # the innermost braces first
        before, text = text, _BRACES.sub(keep, text)
    return expand(text)


def _check_number(factors: Iterable[int]) -> None:
    """Raise MisuseError where crossed values make too many commands."""
    if (number := math.prod(factors)) > _MOST_CELLS:
        hint = r"write \{ for a brace of the program's own"
        raise MisuseError(f"these are {number:,} commands, more than {_MOST_CELLS}; {hint}")


def _step(limits: re.Match[str]) -> int:
    return abs(int(limits[3] or 1)) or 1


def _count(limits: re.Match[str]) -> int:
    """Return the number of values of a range such as 1..9..2."""
    return abs(int(limits[2]) - int(limits[1])) // _step(limits) + 1


def _alternatives(inside: str) -> list[str]:
    """Return a,b and 1..4 and 01..10..3 as a list, as bash does."""
    limits = _RANGE.fullmatch(inside)
    if limits is None:
        return inside.split(",")
    if (number := _count(limits)) > _MOST_CELLS:
        hint = r"write \{ for a brace of the program's own"
        raise MisuseError(f"{{{inside}}} has {number:,} values, more than {_MOST_CELLS}; {hint}")
    first, last, step = int(limits[1]), int(limits[2]), _step(limits)
    # A leading zero pads all of them.
    is_padded = any(re.match("-?0.", text) for text in (limits[1], limits[2]))
    width = max(len(limits[1]), len(limits[2])) if is_padded else 0
    sign = 1 if last >= first else -1
    return [f"{number:0{width}d}" for number in range(first, last + sign, sign * step)]


def split_line(line: str) -> list[str]:
    """Return the words of a command line: its own, or those of a shell where only that understands it.

    Raises MisuseError: it is empty, or a quotation has no end.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise MisuseError(f"cannot read the command {line!r:.60}: {error}") from error
    if not words:
        raise MisuseError("a command is empty")
    if _OF_SHELLS.search(_without_quotations(line)):
        return ["sh", "-c", line]
    return words


def _check_option(word: str, options: Sequence[str]) -> None:
    """Raise MisuseError for an option that bench does not have, with the one that does the same."""
    if word.startswith("-"):
        name = word.partition("=")[0]
        hint = "a program's own come within its quotes or behind `--`, a workload's after its name"
        if name in _SHELL:
            hint = "no shell is used unless a command has a shell's syntax, such as | or >; then sh is"
            hint += "; another one is a command: 'zsh -c \"…\"'"
        elif name in _KIN:
            hint = f"use {_KIN[name]}"
        elif close := difflib.get_close_matches(name, options, n=1, cutoff=0.75):
            hint = f"did you mean {close[0]}?"
        raise MisuseError(f"no option {word:.60}; {hint}")


def _without_quotations(line: str) -> str:
    """Return a line without what is quoted, except for what a shell reads within double quotes."""
    return _QUOTED.sub(lambda quoted: re.sub(r"[^$`]", "_", quoted[1] or ""), line)


def bench_file(
    words: Sequence[str],
    program: Sequence[str],
    *,
    vary: Sequence[str] = (),
    environments: Sequence[str] = (),
    beside: Sequence[str] = (),
    name: str | None = None,
    is_workload: bool = False,
    options: Sequence[str] = (),
    settings: Mapping[str, Any] = MappingProxyType({}),
    top: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the content of the experiment file for a command line, without its name.

    Args:
        words: each a command line, or the name of a workload and its parameters.
        program: a program and its arguments, as after `--`; empty: there is none.
        vary: NAME=VALUE,VALUE texts.
        environments, beside: with braces.
        name: of the programs; None: it follows from them.
        is_workload: whether the first word is a workload.
        options: names of those of bench, one of which an unknown option may have meant.
        settings: keys of each entry of an experiment file, such as `observe`.
        top: keys of the experiment file, such as `until`.

    Raises:
        MisuseError: the command line makes no sense.
    """
    varied = _read_vary(vary)
    for word in () if is_workload else words:
        _check_option(word, options)
    if words and program:
        raise MisuseError(f"unexpected {words[0]!r} before `--`; give commands in quotes, or one behind `--`")
    if not all(word.strip() for word in words):
        raise MisuseError("a command is empty")
    if not words and not program:
        raise MisuseError("give commands in quotes, a workload, or one command behind `--`; see: gpuagent bench --help")
    if is_workload:
        parameters = _parameters(words[1:], varied)
        places = parameters.pop("environment", [])
        entries: list[dict[str, Any]] = [{"workload": words[0], "parameters": parameters}]
        facets = [f"parameter:{key}" for key, values in parameters.items() if len(values) > 1]
    else:
        commands, places = _commands(words, program, varied), []
        called = check_program_name(name) if name is not None else name_programs(commands)
        entries = [{"name": called, "command": command} for command in commands]
        facets = ["command"] if len(commands) > 1 else []
        if len({tuple(map(_without_path, command)) for command in commands}) < len(commands):
            # Comparisons take paths for the same, which are elsewhere on each node.
            labels = list(map(_label, commands))
            if len(set(labels)) < len(labels):
                labels = list(map(shlex.join, commands))
            entries = [{**entry, "labels": {_LABEL: label}} for entry, label in zip(entries, labels, strict=True)]
            facets = [f"label:{_LABEL}"]
    places += [one for text in environments for one in expand_braces(text)]
    neighbours = [one for text in beside for one in expand_braces(text)]
    facets += ["environment"] if len(places) > 1 else []
    facets += ["interference"] if len(neighbours) > 1 else []
    if "until" in top and parse_width(top["until"]) and not facets:
        raise MisuseError("--until needs at least two commands or settings to compare")
    by = ",".join(facets) or ("command" if "command" in entries[0] else "workload")
    answers = [f"compare --by {by}"]
    kinds = entries[0]["parameters"].get("find", ()) if is_workload else ()
    if kinds:
        # Each run of serve-load is a whole search, with an interval of its own.
        top = {**({} if facets else {"repeats": 1}), "warm_up": 0, **top}
        # A server that has a name is called so.
        shown = "parameter:server" if not facets and "server" in entries[0]["parameters"] else by
        answers = [f"serving --by {shown}", *(f"compare --by {by} --metric highest_{kind}" for kind in kinds if facets)]
    of_steps = _count_items(settings.get("items_per_step"), entries)
    return {
        "repeats": ROUNDS if "until" not in top else _ROUNDS_UNTIL,
        "warm_up": 1,
        **top,
        **({"environments": places} if places else {}),
        **({"with": neighbours} if neighbours else {}),
        "workloads": [{**entry, **settings, **items} for entry, items in zip(entries, of_steps, strict=True)],
        "answer": answers,
    }


def _count_items(asked: float | str | None, entries: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the items of a step of each entry, where they are given.

    Raises MisuseError: one number is given for steps of other sizes, or a command lacks the option that has it.
    """
    commands = [entry.get("command", ()) for entry in entries]
    if asked is None:
        return [{} for _ in entries]
    sizes = [{option: value for option, value in read_options(each) if is_step_size(option)} for each in commands]
    for option in sizes[0] if not isinstance(asked, str) else ():
        if any(each.get(option) != sizes[0][option] for each in sizes):
            raise MisuseError(
                f"--items-per-step {asked:g} counts the same for each --{option}; let it count that: "
                f"--items-per-step {option}"
            )
    return [{"items_per_step": count_items(asked, command)} for command in commands]


def _without_path(word: str) -> str:
    """Return a word of a command with paths alike, that of `NAME=PATH` too."""
    name, equals, value = word.rpartition("=")
    return f"{name}{equals}(path)" if "/" in value else word


def _label(command: Sequence[str]) -> str:
    """Return a command as the name of a side, as it was given."""
    text = command[2] if list(command[:2]) == ["sh", "-c"] and len(command) == 3 else shlex.join(command)
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        raise MisuseError(
            f"commands that differ in paths take up to {MAX_NAME_CHARACTERS} characters; not {text:.60} …"
        )
    return text


def name_bench(content: Mapping[str, Any]) -> str:
    """Return a name for a new experiment: that of its program, with a random end."""
    entry = content["workloads"][0]
    program = re.sub(r"[^A-Za-z0-9._-]", "_", entry.get("name") or entry["workload"])
    return f"{program[:_NAME_CHARACTERS].lstrip('._-') or 'bench'}-{secrets.token_hex(3)}"


def digest_bench(content: Mapping[str, Any], folder: str) -> str:
    """Return the identity of a command line in a folder, by which it resumes."""
    return hashlib.sha256(json.dumps([content, folder], sort_keys=True).encode()).hexdigest()[:16]


def _read_vary(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each name that --vary gives."""
    for text in texts:
        if "=" not in text:
            raise MisuseError(f"--vary takes a name and its values, such as batch-size=32,128; not {text!r:.60}")
    return {key: _values(key, text) for key, text in parse_pairs(texts, "--vary").items()}


def _values(name: str, text: str) -> list[str]:
    if _DECIMAL_RANGE.fullmatch(text):
        raise MisuseError(f"--vary {name}={text:.60}: a range has whole numbers; list the values: {name}=0.1,0.2")
    limits = _RANGE.fullmatch(text)
    if limits and (number := _count(limits)) > _MOST_CELLS:
        raise MisuseError(f"--vary {name}={text:.60} has {number:,} values; give at most {_MOST_CELLS}")
    values = _alternatives(text)
    if not all(values):
        raise MisuseError(f"--vary {name} takes values between commas, such as {name}=32,128; not {text!r}")
    if len(once := list(dict.fromkeys(values))) < len(values):
        raise MisuseError(f"--vary {name} has a value twice; give each once: --vary {name}={','.join(once):.100}")
    return values


def _parameters(words: Sequence[str], vary: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the values of each parameter of a workload."""
    for before, word in itertools.pairwise(["", *words]):
        if not word.startswith("-") and (not before.startswith("--") or "=" in before):
            hint = "quote braces, '{a,b}', or give --vary NAME=A,B"
            raise MisuseError(f"unexpected {word!r}; a shell makes words of braces: {hint}")
    given = parse_pairs(word_parameters(words), "a parameter")
    found = {_parameter_name(name): expand_braces(value) for name, value in given.items()}
    for name, values in vary.items():
        if _parameter_name(name) in found:
            raise MisuseError(f"{name} is given twice; omit one")
        found[_parameter_name(name)] = list(values)
    for name, values in found.items():
        if len(set(values)) < len(values):
            raise MisuseError(f"{name} has a value twice; omit one")
    return found


def _parameter_name(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _commands(lines: Sequence[str], program: Sequence[str], vary: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return every command, each once."""
    if program:
        expanded = list(map(expand_braces, program))
        _check_number(map(len, (*expanded, *vary.values())))
        forms = itertools.product(*expanded)
        templates = [[re.sub(r"\\([{}])", r"\1", word) for word in words] for words in forms]
    else:
        templates = [[line] for text in lines for line in expand_braces(text)]
        _check_number(map(len, (templates, *vary.values())))
    made = []
    for template, values in itertools.product(templates, itertools.product(*vary.values())):
        words = list(template)
        for name, value in zip(vary, values, strict=True):
            words = _with_value(words, name, value, is_line=not program)
        made.append(words if program else split_line(words[0]))
    twice = [words for at, words in enumerate(made) if words in made[:at]]
    if twice:
        raise MisuseError(f"the command {shlex.join(twice[0])!r:.100} is given twice; give each once")
    return made


def _with_value(words: Sequence[str], name: str, value: str, *, is_line: bool) -> list[str]:
    """Return a command with a value: in the place of {NAME}, or else as an argument at its end."""
    place = f"{{{name}}}"
    if any(place in word for word in words):
        return [word.replace(place, value) for word in words]
    if is_line and _ENDS_ARGUMENTS.search(_without_quotations(words[0])):
        raise MisuseError(f"{words[0]!r:.60} is more than one program: write {place} where the values of --vary belong")
    hyphens = "" if name.startswith("-") else "-" if len(name) == 1 else "--"
    added = [f"{hyphens}{name}", value]
    return [f"{words[0]} {shlex.join(added)}"] if is_line else [*words, *added]
