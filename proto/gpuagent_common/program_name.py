"""The name of a program of the user's: given, or that of its script or module."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from pathlib import PurePath

from gpuagent_common.errors import MisuseError

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)

# An option with its value in the same word: --nodes=2, -n4, -v/data:/data.
_ATTACHED = re.compile(r"--?[\w-]+=.*|-[A-Za-z][^A-Za-z-].*", re.DOTALL)

# Names of options that decide how much a step does: batch-size and bs, but neither batches nor batch-norm.
_STEP_SIZE = re.compile(r".*batch[-_]?size.*|.*accum.*|((mini|micro|global)[-_]?)?batch|[mg]?bsz?", re.IGNORECASE)
# Those of steps beside the training.
_EVALUATION = re.compile(r"(?<![a-z])(eval|test|val)", re.IGNORECASE)

# Options of MPI's starters that take two words.
_PAIRS = frozenset({"mca", "gmca", "env", "genv"})

# Words between a program and its action: `docker container run`, `uv tool run`.
_GROUPS = frozenset({"compose", "container", "tool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """The form of a starter's command line: STARTER [OPTIONS] [ACTION] [OPTIONS] [OPERANDS] PROGRAM.

    Attributes:
        actions: those of its actions that start a program, blank-separated; empty: it has no actions.
        operands: number of its own words before the program, such as an image.
        values: its options that take the next word, without hyphens.
        flags: its options that take no word, where all others take one; None: see `values`.
        is_named: whether its operand names the run where no program follows, as an image does.
    """

    actions: str = ""
    operands: int = 0
    values: str = ""
    flags: str | None = None
    is_named: bool = False

    def takes_word(self, option: str) -> int:
        """Return the number of words that follow an option as its values."""
        name = option.lstrip("-")
        if self.flags is None:
            return 1 if name in self.values.split() else 0
        flags = self.flags.split()
        if name in flags or _ATTACHED.fullmatch(option) or (not option.startswith("--") and set(name) <= set(flags)):
            return 0
        return 2 if name in _PAIRS else 1

    def skip_options(self, words: Sequence[str], looks_started: Sequence[bool]) -> int:
        """Return the place of the first word that is no option, value or assignment.

        `looks_started`: which words are certainly programs, so that no option has them as its value.
        """
        at = 0
        while at < len(words):
            word = words[at]
            if word == "--":
                return at + 1
            if word.startswith("-") and word != "-":
                at += 1
                for _ in range(self.takes_word(word)):
                    is_value = at < len(words) and not words[at].startswith("-")
                    at += is_value and (bool(self.operands) or not looks_started[at])
            elif ASSIGNMENT.fullmatch(word):
                at += 1
            else:
                break
        return at

    def skip_action(self, words: Sequence[str]) -> int | None:
        """Return the place behind the action; None: it is not one that starts a program."""
        at = self.skip_options(words, [False] * len(words))
        while words[at : at + 1] and words[at] in _GROUPS:
            at += 1
        return at + 1 if words[at : at + 1] and words[at] in self.actions.split() else None


_MPI = Starter(
    flags="allow-run-as-root oversubscribe nooversubscribe report-bindings tag-output timestamp-output display-map "
    "display-allocation use-hwthread-cpus bind-to-core bind-to-socket bind-to-none bycore byslot bynode l v q verbose "
    "quiet pernode npersocket nolocal prepend-rank"
)
_CONTAINER = Starter(
    actions="run exec",
    operands=1,
    flags="rm i t d P q interactive tty detach init privileged read-only publish-all quiet no-healthcheck "
    "oom-kill-disable sig-proxy tls replace no-hosts env-host http-proxy rmi D debug T build service-ports use-aliases "
    "no-deps no-TTY",
    is_named=True,
)
_APPTAINER = Starter(
    actions="exec run",
    operands=1,
    values="B bind H home W workdir S scratch o overlay pwd cwd env env-file network network-args hostname dns "
    "security add-caps drop-caps apply-cgroups app fusemount mount nvccli-device cpus cpuset-cpus cpuset-mems memory "
    "memory-swap pids-limit blkio-weight docker-login pem-path c config",
    is_named=True,
)
_CONDA = Starter(actions="run", values="n name p prefix r root-prefix e env cwd a attach")
_UVX = Starter(
    values="from with with-editable with-requirements w p python c constraints index default-index i index-url f "
    "find-links extra group only-group no-group env-file directory project package config-file cache-dir"
)
_WITHOUT_OPTIONS = Starter()

STARTERS: dict[str, Starter] = {
    # The system's.
    "env": Starter(values="u unset C chdir"),
    "ionice": Starter(values="c class n classdata"),
    "nice": Starter(values="n adjustment"),
    "nohup": _WITHOUT_OPTIONS,
    "numactl": Starter(
        values="N cpunodebind m membind C physcpubind i interleave w weighted-interleave p preferred P preferred-many"
    ),
    "setsid": _WITHOUT_OPTIONS,
    "stdbuf": Starter(values="i input o output e error"),
    "sudo": Starter(
        values="u user g group h host p prompt C close-from D chdir R chroot T command-timeout U other-user r role "
        "t type"
    ),
    "taskset": Starter(operands=1),
    "time": Starter(values="o output f format"),
    "timeout": Starter(operands=1, values="k kill-after s signal"),
    # Of Python environments.
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "pdm": Starter(actions="run", values="p project s site-packages-from venv c config"),
    "pipenv": Starter(actions="run", values="python categories"),
    "pixi": Starter(actions="run", values="e environment manifest-path m p platform color"),
    "poetry": Starter(actions="run", values="C directory P project"),
    "uv": Starter(actions="run", values=_UVX.values),
    "uvx": _UVX,
    # Of several processes.
    "mpiexec": _MPI,
    "mpiexec.hydra": _MPI,
    "mpirun": _MPI,
    "orterun": _MPI,
    "prterun": _MPI,
    "srun": Starter(
        flags="l label u unbuffered v verbose Q quiet O overcommit s oversubscribe exclusive overlap exact pty X "
        "disable-status E preserve-env Z no-allocate H hold k no-kill whole contiguous multi-prog W j "
        "container-writable container-mount-home no-container-mount-home container-remap-root"
    ),
    # Of containers.
    "apptainer": _APPTAINER,
    "docker": _CONTAINER,
    "nerdctl": _CONTAINER,
    "podman": _CONTAINER,
    "singularity": _APPTAINER,
    # Profilers and debuggers.
    "gdb": Starter(values="ex eval-command x command iex init-eval-command"),
    "ncu": Starter(flags="f force-overwrite nvtx csv quiet call-stack h help print-summary-only"),
    "nsys": Starter(actions="profile launch", flags=""),
    "perf": Starter(actions="record stat trace", values="e event o output F freq c count call-graph C cpu I r repeat"),
    "py-spy": Starter(actions="record top", values="o output f format r rate d duration"),
    "strace": Starter(values="o e s p P u S a b E I O X"),
    "valgrind": _WITHOUT_OPTIONS,
}


_MAX_CHARACTERS, _DIGEST_CHARACTERS = 64, 8
_TOGETHER_CHARACTERS = 40

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

    Raises MisuseError: it is empty, too long, or has other characters than letters, digits, '.', '_' and '-'.
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
    import hashlib  # only here: it loads a library, and few names are cut

    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: _MAX_CHARACTERS - _DIGEST_CHARACTERS - 1]}-{digest}"


def name_programs(commands: Iterable[Sequence[str]]) -> str:
    """Return one name for all commands, since only runs of one name are compared."""
    names = dict.fromkeys(name_program(command) for command in commands)
    return re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(names))[:_TOGETHER_CHARACTERS]


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
    rest = rest[starter.skip_options(rest, [is_program(word) for word in rest]) :]
    operands, rest = rest[: starter.operands], rest[starter.operands :]
    rest = rest[starter.skip_options(rest, [True] * len(rest)) :] if not starter.is_named else rest
    if rest and not rest[0].startswith("-"):
        return _find_program(rest)
    return PurePath(operands[0]).name if operands and starter.is_named else ""


def is_program(word: str) -> bool:
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


def is_step_size(option: str) -> bool:
    """Return whether an option decides how much a step does, such as --batch-size or train.batch_size."""
    return bool(_STEP_SIZE.fullmatch(option.lstrip("-").rpartition(".")[2])) and not _EVALUATION.search(option)


def find_step_size(commands: Iterable[Sequence[str]]) -> str:
    """Return the option that is the size of a step, such as batch-size, if commands differ in it; '' for none.

    Each of them has it, with a number, as --items-per-step needs.
    """
    given = [dict(read_options(command)) for command in commands]
    for option in filter(is_step_size, given[0] if given else ()):
        values = {each.get(option, "") for each in given}
        if len(values) > 1 and all(map(str.isdigit, values)) and "accum" not in option:
            return option
    return ""


def read_options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of a command with their values: without hyphens before, and with hyphens for underscores."""
    for word, following in zip_longest(command, command[1:], fillvalue=""):
        option, equals, value = word.partition("=")
        if equals or word.startswith("-"):
            yield option.lstrip("-+").replace("_", "-"), value if equals else following
