"""The name of a program of the user's: given, or that of its script or module."""

import re
from collections.abc import Sequence
from pathlib import PurePath

from gpuagent_common.errors import MisuseError

_MAX_CHARACTERS = 64

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_SHELLS = frozenset({"bash", "dash", "sh", "zsh"})
_INTERPRETERS = _SHELLS | {"julia", "node", "perl", "Rscript", "ruby"}
_SCRIPT = re.compile(r".+\.(?:py|sh|bash|pl|rb|js|jl|R|r)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)

# Options of Python that take the next word.
_PYTHON_VALUES = frozenset({"-W", "-X", "--check-hash-based-pycs"})

# Modules that run another module or script.
_LAUNCHING_MODULES = frozenset({"accelerate.commands.launch", "torch.distributed.launch", "torch.distributed.run"})

# Programs that take Python scripts and modules (-m).
_LAUNCHERS = frozenset({"accelerate", "deepspeed", "torchrun"})

# Programs that start the rest of their command line.
_STARTERS = frozenset(
    {
        *("chrt", "env", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time", "timeout"),
        *("conda", "mpiexec", "mpirun", "pipenv", "poetry", "srun", "uv"),
    }
)

# Those of them that take no word of their own before the program, except options and assignments.
_PLAIN_STARTERS = frozenset({"env", "mpiexec", "mpirun", "nice", "nohup", "setsid", "srun", "time"})


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

    Starters such as env, nohup, torchrun and srun are skipped where it is certain which word they start.
    """
    return re.sub(r"[^\w.-]", "_", _find_program(command))[:_MAX_CHARACTERS] or "command"


def _find_program(words: Sequence[str]) -> str:
    """Return the program of a command line whose first word is a program."""
    first, rest = PurePath(words[0]).name, words[1:]
    if _PYTHON.fullmatch(first):
        return _find_in_python(rest) or first
    if first in _INTERPRETERS:
        code = "c" if first in _SHELLS else "e"
        if rest and re.fullmatch(f"-[a-z]*{code}", rest[0]):
            return f"{first}-{code}"
        return PurePath(next((word for word in rest if not word.startswith("-")), first)).name
    if first in _LAUNCHERS:
        return _find_launched(rest) or first
    if first in _STARTERS:
        return _find_started(first, rest) or first
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
        if word in ("-m", "--module"):
            return "".join(words[index + 1 : index + 2])
        if _SCRIPT.fullmatch(word):
            return PurePath(word).name
    return ""


def _find_started(starter: str, words: Sequence[str]) -> str:
    """Return the program behind a starter and its options, of which some take a word; empty: it is not certain."""
    own = [word for word in words if not _ASSIGNMENT.fullmatch(word)]
    for index, word in enumerate(own):
        if word.startswith("-"):
            continue
        name = PurePath(word).name
        is_next = index == 0 and starter in _PLAIN_STARTERS
        is_path = "/" in word and not (index and own[index - 1].startswith("-"))
        is_known = _PYTHON.fullmatch(name) or name in _INTERPRETERS | _LAUNCHERS | _STARTERS
        if is_next or is_path or is_known or _SCRIPT.fullmatch(name):
            return _find_program(own[index:])
    return ""
