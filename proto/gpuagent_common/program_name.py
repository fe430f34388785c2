"""The name of a program of the user's: given, or that of its script or module."""

import hashlib
import re
import shlex
from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePath

from gpuagent_common.errors import MisuseError
from gpuagent_common.program_starters import ASSIGNMENT, STARTERS, Starter

_MAX_CHARACTERS, _DIGEST_CHARACTERS = 64, 8

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_SHELLS = frozenset({"bash", "dash", "sh", "zsh"})
_INTERPRETERS = _SHELLS | {"julia", "node", "perl", "Rscript", "ruby"}
_SCRIPT = re.compile(r".+\.(?:py|sh|bash|pl|rb|js|jl|R|r)")
# Options of Python that take the next word.
_PYTHON_VALUES = frozenset({"-W", "-X", "--check-hash-based-pycs"})

# Modules that run another module or script.
_LAUNCHING_MODULES = frozenset(
    {
        *("accelerate.commands.launch", "deepspeed", "deepspeed.launcher.runner"),
        *("torch.distributed.launch", "torch.distributed.run", "torch.utils.bottleneck"),
        *("cProfile", "coverage", "debugpy", "kernprof", "memory_profiler", "memray", "pdb", "profile", "pyinstrument"),
        *("scalene", "trace", "viztracer"),
    }
)

# Programs that take Python scripts and modules (-m).
_LAUNCHERS = frozenset(
    {
        *("accelerate", "colossalai", "composer", "deepspeed", "torchrun"),
        *("coverage", "kernprof", "memray", "mprof", "pyinstrument", "scalene", "viztracer"),
    }
)

# Commands of shells that only prepare for the next.
_PREPARING = frozenset({".", "cd", "echo", "export", "mkdir", "module", "set", "source", "ulimit", "umask", "unset"})


def check_program_name(text: str) -> str:
    """Return a valid name of a program: a part of file names, and of its runs' identities.

    Raises:
        MisuseError: it is empty, too long, or has other characters than letters, digits, '.', '_' and '-'.
    """
    if not re.fullmatch(rf"[\w.-]{{1,{_MAX_CHARACTERS}}}", text):
        raise MisuseError(f"--name takes up to {_MAX_CHARACTERS} letters, digits, '.', '_' and '-', not {text[:50]!r}")
    return text


def name_program(command: Sequence[str]) -> str:
    """Return the name of the program that a command line runs: of its script or module, not of its interpreter.

    Starters such as env, torchrun, `docker run IMAGE` and srun are skipped; an image names a run without a program.
    """
    name = re.sub(r"[^\w.-]", "_", _find_program(command)) or "command"
    if len(name) <= _MAX_CHARACTERS:
        return name
    # A cut name is an identity too: two long ones stay different.
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: _MAX_CHARACTERS - _DIGEST_CHARACTERS - 1]}-{digest}"


def _find_program(words: Sequence[str]) -> str:
    first, rest = PurePath(words[0]).name, words[1:]
    if _PYTHON.fullmatch(first):
        return _find_in_python(rest) or first
    if first in _INTERPRETERS:
        code = "c" if first in _SHELLS else "e"
        if rest and re.fullmatch(f"-[a-z]*{code}", rest[0]):
            return (_find_in_line(rest[1]) if first in _SHELLS and rest[1:] else "") or f"{first}-{code}"
        return PurePath(next((word for word in rest if not word.startswith("-")), first)).name
    if first in _LAUNCHERS:
        return _find_launched(rest) or first
    if first in STARTERS:
        return _find_started(STARTERS[first], rest) or first
    return first


def _find_in_python(words: Sequence[str]) -> str:
    """Return the script or module behind `python`; empty: neither."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-m"):
            module = word[2:] or "".join(rest[:1])
            return (_find_launched(rest) if module in _LAUNCHING_MODULES else "") or module
        if re.fullmatch(r"-[A-Za-z]*c", word):
            return "python-c"
        if word in _PYTHON_VALUES:
            del rest[:1]
        elif not word.startswith("-"):
            return PurePath(word).name
    return ""


def _find_launched(words: Sequence[str]) -> str:
    """Return the first script, or the module behind -m; empty: neither is certain."""
    for index, word in enumerate(words):
        following = words[index + 1 : index + 2]
        if word in ("-m", "--module") and following and not following[0].startswith("-"):
            return following[0]
        if _SCRIPT.fullmatch(word):
            return PurePath(word).name
    return ""


def _find_started(starter: Starter, words: Sequence[str]) -> str:
    """Return the program behind a starter, its options and operands; empty: there is none."""
    at = starter.skip_action(words) if starter.actions else 0
    if at is None:
        return ""
    rest = words[at:]
    rest = rest[starter.skip_options(rest, [_is_program(word) for word in rest]) :]
    operands, rest = rest[: starter.operands], rest[starter.operands :]
    rest = rest[starter.skip_options(rest, [True] * len(rest)) :] if not starter.is_named else rest
    if rest and not rest[0].startswith("-"):
        return _find_program(rest)
    return PurePath(operands[0]).name if operands and starter.is_named else ""


def _is_program(word: str) -> bool:
    """Return whether a word is certainly a program, or a script."""
    name = PurePath(word).name
    known = name in _INTERPRETERS or name in _LAUNCHERS or name in STARTERS
    return known or bool(_PYTHON.fullmatch(name) or _SCRIPT.fullmatch(name))


def _find_in_line(line: str) -> str:
    """Return the program of a shell's command line, behind commands that only prepare for it; empty: not certain."""
    splitter = shlex.shlex(line, posix=True, punctuation_chars="();<>|&`\n")
    splitter.whitespace, splitter.whitespace_split = " \t", True
    commands: list[list[str]] = [[]]
    try:
        for word in splitter:
            if word in ("&&", "||", "&", ";", "\n"):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:  # a quotation without an end
        return ""
    started = [command for command in commands if command and command[0] not in _PREPARING]
    if len(started) != 1:
        return ""
    words = started[0]
    while words and (words[0] == "exec" or ASSIGNMENT.fullmatch(words[0])):
        words = words[1:]
    if not words or re.search(r"[^\w./+-]", words[0]):
        return ""
    return _find_program(list(takewhile(lambda word: not re.fullmatch(r"[();<>|&`]+", word), words)))
