"""`gpuagent bench`: compare commands or settings in one command, from nothing to the answer."""

import fcntl
import os
import re
import shlex
import shutil
import stat
import termios
from pathlib import Path
from typing import Any

import click

from gpuagent.cli.node_agent import given_to_agent
from gpuagent.cli.options import agent_config, agent_options
from gpuagent_common.cli import ProgramCommand, interrupt_on_signals, parse_pairs
from gpuagent_common.errors import MisuseError
from gpuagent_common.run_spec import run_options

# Of a run, and the same for all of them.
_SETTINGS = ("timeout_seconds", "observe", "pattern", "items_per_step")
_HOURS = {"s": 1 / 3600, "min": 1 / 60, "h": 1.0}


def _hours(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """Return the hours of a time such as 90s, 10min or 2h."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(s|min|h)", text)
    if match is None or not float(match[1]):
        raise MisuseError(f"--at-most takes a time above 0 and s, min or h, such as 10min; not {text!r}")
    return float(match[1]) * _HOURS[match[2]]


def _width(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,3})?%", text):
        raise MisuseError(f"--until takes a percentage above 0 and below 100, such as 2%; not {text!r:.40}")
    return text


@click.command(
    cls=ProgramCommand,
    context_settings={"ignore_unknown_options": True},
    options_metavar="[OPTIONS]",
    epilog="""\b
Examples:
  gpuagent bench 'python a.py' 'python b.py'
  gpuagent bench --vary batch-size=32,128 -- python train.py
  gpuagent bench -- python train.py --lr '{0.1,0.2}' --seed '{1..3}'
  gpuagent bench mnist --vary precision=fp32,bf16
  gpuagent bench --until 2% --at-most 10min 'sort {a,b}.txt' -o answer.html
  gpuagent bench --prepare 'make clean' --vary jobs=1,2,4 'make -j {jobs}'""",
)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND… | WORKLOAD [--KEY VALUE]… | -- PROGRAM [ARGUMENT]…"
)
@click.option("--vary", metavar="NAME=A,B", multiple=True, help="Values of {NAME}, or of --NAME; repeatable.")
@click.option("--environment", "environments", metavar="ENV[:IMAGE]", multiple=True, help="Environment; repeatable.")
@click.option("--rounds", metavar="N", type=click.IntRange(1, 1000), help="Runs of each cell.  [default: 7]")
@click.option("--warm-up", metavar="N", type=click.IntRange(0, 100), help="Rounds that do not count.  [default: 1]")
@click.option(
    "--until", metavar="WIDTH", callback=_width, help="Stop at a planned look with intervals this narrow, such as 2%."
)
@click.option("--at-most", "hours", metavar="TIME", callback=_hours, help="Begin no round that would exceed TIME.")
@click.option("--prepare", metavar="COMMAND", help="Command for the shell before each run, not measured.")
@run_options(
    *("beside", "name", "parameters", *_SETTINGS),
    beside={"help": "Workload beside it, or none; repeatable."},
    name={"help": "Name of the programs."},
)
@click.option(
    "-o",
    "--output",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the answer: .html, .md, .tex, .csv, .json, .png, .svg.",
)
@click.option("--store", metavar="FILE", help="Store in this file.  [default: runs.duckdb, if no collector listens]")
@click.option("--anew", is_flag=True, help="Make all runs, also after an interruption.")
@click.option("--force", is_flag=True, help="Start even if the GPUs are busy or torch cannot use them.")
@agent_options
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], **options: Any) -> int:
    """Compare commands or settings: run them in turns, and answer.

    Each COMMAND is a cell; {a,b} and {1..4} make one cell of each value, in quotes, since a shell would make words of
    them. Every cell runs once a round, in random order, after a round that does not count. The runs go to the
    collector; if none listens, to a file here. The same command resumes after Ctrl-C. Standard input from a file is
    given to each run. The exit code is 1 if a run failed.
    """
    from gpuagent.cli.benching import Bench, check_output
    from gpuagent.experiment.bench import bench_file

    program = ctx.meta.get("program", [])
    files, prepare, anew, force = (options.pop(name) for name in ("files", "prepare", "anew", "force"))
    settings = {name: value for name in _SETTINGS if (value := options.pop(name))}
    # A name of a workload has parameters behind it, or is alone and no program.
    is_workload = (
        (len(words) == 1 or any(each.startswith("-") for each in words[1:]))
        and not re.search(r"^-|\s", words[0])
        and shutil.which(words[0]) is None
    )
    for file in files:
        check_output(file, is_workload=is_workload)
    parameters = parse_pairs(options.pop("parameters"), "--param")
    if parameters and not is_workload:
        raise MisuseError("--param is for a built-in workload; --vary NAME=A,B gives a command of your own its options")
    words = (*words, *(f"--{name}={value}" for name, value in parameters.items()))
    if not program and words[1:] and os.sep not in words[0] and shutil.which(words[0]) and _is_script(words[1]):
        raise MisuseError(
            f"{words[1]} is no command; one program goes behind `--`: gpuagent bench -- {shlex.join(words)}"
        )
    given_input = None if is_workload else _input_file()
    if given_input:
        settings["input"] = str(given_input)
        click.echo(f"gpuagent: each run gets {given_input} as standard input", err=True)
    top = {"repeats": options.pop("rounds"), "warm_up": options.pop("warm_up"), "until": options.pop("until")}
    top["budget"] = {"hours": hours} if (hours := options.pop("hours")) else None
    content = bench_file(
        words,
        program,
        is_workload=is_workload,
        options=[name for option in ctx.command.params for name in option.opts if name.startswith("--")],
        settings=settings,
        top={name: value for name, value in top.items() if value is not None},
        **{name: options.pop(name) for name in ("vary", "environments", "beside", "name")},
    )
    store = options.pop("store")
    config = agent_config(options, allow_commands=True)
    interrupt_on_signals()
    bench = Bench(
        content=content,
        config=config,
        given=tuple(given_to_agent(ctx)),
        store=store,
        prepare=prepare,
        files=files,
        context=ctx,
        force=force,
    )
    bench.check()
    if program and len(content["workloads"]) == 1:
        several = "to compare, quote braces, '{a,b}', or give --vary"
        click.echo(f"gpuagent: one command, so it is only repeated; {several}", err=True)
    return bench.run(anew=anew)


def _is_script(word: str) -> bool:
    """Return whether a word is the file of a script that cannot be executed itself."""
    return Path(word).is_file() and not os.access(word, os.X_OK)


def _input_file() -> Path | None:
    """Return the file that standard input comes from; None: it is no file."""
    mode = os.fstat(0).st_mode
    path = Path("/proc/self/fd/0").resolve()
    if stat.S_ISREG(mode) and path.is_file():
        return path
    # A pipe that has something to read.
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and any(fcntl.ioctl(0, termios.FIONREAD, bytes(4)))):
        click.echo("gpuagent: standard input is a pipe, which only one run could read; give a file: < FILE", err=True)
    return None
