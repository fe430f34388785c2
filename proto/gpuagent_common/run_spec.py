"""A run as users ask for it: the options of command lines, and the request that they make."""

import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent_common.cli import MOST, MOST_SECONDS, NAME, Number, parse_pairs, word_parameters
from gpuagent_common.errors import MisuseError
from gpuagent_common.program_name import read_options

if TYPE_CHECKING:
    from gpuagent_proto.v1.run_pb2 import RunSpec

Decorated = Callable[..., Any]

_NODE = "all of the node"
_COUNT, _SECONDS = Number(0, 1e15, min_open=True), Number(0, MOST_SECONDS, min_open=True)


class _Items(click.types.StringParamType):
    """The items of a step: a number, or the name of an option of the program that has it."""

    name = "number or option"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number or the name; otherwise a usage error."""
        text = str(value)
        return text.lstrip("-") if re.fullmatch(r"-{0,2}[A-Za-z][\w.-]*", text) else _COUNT.convert(value, param, ctx)


_REPEATED = {"metavar": "N", "type": click.IntRange(1, MOST), "default": 1, "show_default": True}


def _option(flag: str, help_text: str, **settings: Any) -> Callable[..., Callable[[Decorated], Decorated]]:
    return partial(click.option, flag, help=help_text, **settings)


# By the parameter.
_OPTIONS = {
    "name": _option(
        "--name", "Name PROGRAM; its runs are compared by it.", type=NAME, metavar="NAME", show_default="its script's"
    ),
    "parameters": _option("--param", "Parameter of the workload; repeatable.", metavar="K=V", multiple=True),
    "repeat": _option("--repeat", "Number of runs.", **_REPEATED),
    "environment": _option(
        "--environment",
        "Container or scheduler; `gpuagent info` lists them.",
        metavar="ENV[:IMAGE]",
        default="bare",
        show_default=True,
    ),
    "beside": _option(
        "--with", "Workload to run beside it, such as cpu-burn; repeatable.", metavar="WORKLOAD", multiple=True
    ),
    "cpus": _option("--cpus", "Limit of CPUs.", metavar="N", type=Number(0.01, MOST), show_default=_NODE),
    "memory": _option("--memory", "Limit of memory, such as 8G.", metavar="SIZE", show_default=_NODE),
    "changes": _option(
        "--change",
        "New limit of CPUs during the run, such as cpus=8@60s; repeatable.",
        metavar="cpus=N@SECONDSs",
        multiple=True,
    ),
    "observe": _option("--observe", "Time the steps of a Python program with torch or Keras.", is_flag=True),
    "pattern": _option(
        "--pattern",
        "Printed line with a step, such as 'step {step} loss {loss}'.",
        metavar="PATTERN",
        show_default="a ready one that fits",
    ),
    "items_per_step": _option(
        "--items-per-step",
        "Samples or tokens of a step, or the option that has them.",
        metavar="N|OPTION",
        type=_Items(),
    ),
    "experiment": _option("--experiment", "Name that groups the runs of one question.", type=NAME, metavar="NAME"),
    "timeout_seconds": _option("--timeout", "Stop a run SECONDS after its launch.", metavar="SECONDS", type=_SECONDS),
}
RUN_PARAMETERS = tuple(_OPTIONS)


def run_options(*parameters: str, **own: Mapping[str, Any]) -> Callable[[Decorated], Decorated]:
    """Return the decorator that adds the options of a run.

    Args:
        parameters: of these options; empty: of all.
        own: settings that differ, by parameter.
    """

    def decorate(command: Decorated) -> Decorated:
        for parameter in reversed(parameters or RUN_PARAMETERS):
            command = _OPTIONS[parameter](parameter, **own.get(parameter, {}))(command)
        return command

    return decorate


def check_words(words: Sequence[str], program: Sequence[str]) -> None:
    """Raise MisuseError for words before `--` where a program follows, and for options of another command."""
    context = click.get_current_context()
    options = [name for each in context.command.params for name in each.opts]
    for number, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in ("--platform", "--node") and "--on" in options:
            value = value or next(iter(words[number + 1 :]), "NAME")
            raise MisuseError(f"--on chooses the agents: {context.command_path} --on {name[2:]}={value:.60} …")
    if words and program:
        name = words[0].partition("=")[0]
        close = ["--repeat"] if name == "--rounds" else get_close_matches(words[0], options, n=1, cutoff=0.85)
        hint = "give either a workload or `-- PROGRAM`"
        if close:
            hint = f"did you mean {close[0]}?"
        elif name == "--vary":
            hint = f"`gpuagent bench` has it: {shlex.join(['gpuagent', 'bench', *words, '--', *program]):.120}"
        elif name in ("--profile", "--trace"):
            hint = "it is of built-in workloads; a program of your own can report `op` events (docs/your-program.md)"
        elif name.startswith("-"):
            hint = "there is no such option; the program's own come after `--`"
        raise MisuseError(f"unexpected {words[0]!r} before `--`; {hint}")


def check_workload_name(name: str, words: Sequence[str] = ()) -> None:
    """Raise MisuseError for a word that is an option, or a file here: it was meant for something else.

    `words` are those after it on the command line.
    """
    context = click.get_current_context(silent=True)
    command = context.command_path if context else "gpuagent run"
    if name.startswith("-"):
        # Of two words or more, one that follows an option is its value.
        options, rest = [], [name, *words]
        while rest and rest[0].startswith("-"):
            has_value = "=" not in rest[0] and len(rest) > 2
            options += rest[: 1 + has_value]
            rest = rest[1 + has_value :]
        workload, *others = rest or ["WORKLOAD"]
        right = shlex.join([workload, *options, *others])
        hint = f"its parameters follow it: {command} {right:.120}"
        raise MisuseError(f"{name:.60} comes before the workload's name; {hint}")
    if ("." in name or "/" in name) and Path(name).is_file():
        python = "python" if shutil.which("python") else "python3"
        program = [python, name] if name.endswith(".py") else [str(Path(name).absolute())]
        right = shlex.join([*program, *words])
        raise MisuseError(f"{name:.60} is a file, not a workload; run it as a program: {command} -- {right:.120}")


def count_items(asked: float | str | None, command: Sequence[str]) -> float:
    """Return the items of a step of a command, of which `asked` is the number or an option; 0: unknown.

    Raises MisuseError: the command has no such option with a number above 0.
    """
    if not isinstance(asked, str):
        return asked or 0.0
    try:
        # Of an option that is repeated, programs take the last value.
        return float(_COUNT.convert(dict(read_options(command)).get(asked.replace("_", "-"), ""), None, None))
    except click.BadParameter as error:
        name = shlex.join(command) or "a built-in workload"
        raise MisuseError(f"--items-per-step {asked:.60}: {name:.120} has no --{asked:.60} with a number") from error


def make_spec(
    workload: str | None, program: Sequence[str], words: Sequence[str], labels: Mapping[str, str], **options: Any
) -> "RunSpec":
    """Return the request of `run_options`.

    Args:
        workload: a built-in workload's name, or None with a program.
        program: any program and its arguments, or empty with a workload.
        words: the words after the workload's name: --key value, --key=value.
        labels: of the runs.
        options: those of `run_options`; others are ignored.

    Raises:
        MisuseError: there is neither a workload nor a program, or both; an option is not of its form.
    """
    from gpuagent_common.limits import make_limits
    from gpuagent_common.program_name import check_program_name
    from gpuagent_proto.v1.run_pb2 import RunSpec

    if bool(workload) == bool(program):
        raise MisuseError("give either a workload or `-- PROGRAM`; `gpuagent workloads` lists the workloads")
    if workload:
        check_workload_name(workload, words)
    if options["name"] is not None and not program:
        raise MisuseError("--name is for programs of your own; a built-in workload has its name")
    if options["pattern"] is not None and not options["pattern"].strip():
        raise MisuseError("--pattern is empty; give a line as it is printed, such as 'step {step} loss {loss}'")
    kind, _, image = options["environment"].partition(":")
    spec = RunSpec(
        workload=workload or "",
        command=program,
        parameters=parse_pairs([*options["parameters"], *word_parameters(words)], "--param"),
        repeats=options["repeat"],
        environment=kind,
        image=image,
        interference=options["beside"],
        labels=labels,
        experiment=options["experiment"] or "",
        timeout_seconds=options["timeout_seconds"] or 0,
        name=check_program_name(options["name"]) if options["name"] is not None else "",
        observe=options["observe"],
        pattern=options["pattern"] or "",
        items_per_step=count_items(options["items_per_step"], program),
    )
    make_limits(options["cpus"], options["memory"], options["changes"]).write(spec)
    return spec
