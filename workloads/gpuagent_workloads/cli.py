"""The command line: `python -m gpuagent_workloads list | run | prepare`."""

import os
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from gpuagent_workloads import listing
from gpuagent_workloads.command import WorkloadGroup
from gpuagent_workloads.counters.ncu import counting
from gpuagent_workloads.errors import MisuseError, Terminated, WorkloadError
from gpuagent_workloads.registry import WORKLOADS, find
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.workload import Workload


@click.group(help="Deep-learning workloads that report their phases, steps and results through a run directory.")
def cli() -> None:
    """Hold the commands."""


@cli.command("list")
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="A JSON array, for programs.")
def list_workloads(names: tuple[str, ...], as_json: bool) -> None:
    """List the workloads with their parameters: all of them, or those named."""
    chosen = [find(name) for name in names] or WORKLOADS
    click.echo(listing.as_json(chosen) if as_json else listing.as_text(chosen))


@cli.command()
@click.argument("name", metavar="WORKLOAD")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Where to put it.  [default: a folder in ~/.cache/gpuagent]"
)
@click.option("--mirror", "mirrors", multiple=True, metavar="URL", help="Fetch from this folder instead; repeatable.")
def prepare(name: str, data: Path | None, mirrors: tuple[str, ...]) -> None:
    """Fetch a workload's data. The only command that uses the network.

    An interrupted download goes on where it stopped when the command is given again.
    """
    workload = find(name)
    if workload.prepare is None:
        click.echo(f"{workload.name}: there is nothing to fetch. Its data: {workload.data}.")
        return
    directory = (data or _cache() / (workload.dataset or workload.name)).absolute()
    workload.prepare(directory, mirrors)
    click.echo(f"Ready. To use it: gpuagent run {workload.name} --data {shlex.quote(str(directory))}")


@cli.command()
def check() -> None:
    """See whether the torch that is installed here can use the GPUs.

    Raises:
        WorkloadError: it cannot; says why.
    """
    from gpuagent_workloads.training.device import device_problems

    problems = device_problems()
    if problems:
        raise WorkloadError("; ".join(problems))


def execute(workload: Workload[Any], config: Any) -> None:
    """Run a workload with its reporter, then print its results; if several ranks are wanted, start them instead."""
    if isinstance(config, TrainingConfig) and config.wants_torchrun and not os.environ.get("WORLD_SIZE"):
        _start_ranks(workload.name, config)
        return
    reporter = Reporter.from_environment(on_phase=lambda phase: _announce(workload.name, phase, reporter.rank))
    try:
        with reporter, counting(workload, config, reporter):
            workload.run(config, reporter)
    except (KeyboardInterrupt, Terminated):
        _print_summary(reporter)
        raise
    _print_summary(reporter)


cli.add_command(
    WorkloadGroup(execute, name="run", help="Run a workload to its end.", subcommand_metavar="WORKLOAD ...")
)


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code: 0 done, 1 failed, 2 misuse, 130 interrupted, 143 terminated."""
    try:
        with _sigterm_raises():
            code, complaint = attempt(arguments)
    except Terminated:
        return 128 + signal.SIGTERM
    if complaint:
        print(f"error: {complaint}", file=sys.stderr)  # noqa: T201 - click.echo may be what failed
    return code


def attempt(arguments: Sequence[str]) -> tuple[int, str | None]:
    """Run the command line; return the exit code and, in one line, what went wrong, None if nothing did."""
    try:
        cli.main(list(arguments) or ["--help"], prog_name="python -m gpuagent_workloads", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT, None
    except MisuseError as error:
        return _failed(str(error), 2)
    except click.ClickException as error:
        return _failed(error.format_message(), error.exit_code)
    except WorkloadError as error:
        return _failed(str(error), 1)
    except ModuleNotFoundError as error:
        return _failed(f"{error.name} is not installed here: pip install 'gpuagent[workloads]'", 1)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever failed becomes one line
        return _failed(f"{type(error).__name__}: {error} (GPUAGENT_DEBUG=1 shows where)", 1)
    return 0, None


def _failed(message: str, code: int) -> tuple[int, str]:
    if os.environ.get("GPUAGENT_DEBUG") == "1":
        traceback.print_exc()
    return code, " ".join(message.split())


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that everything is tidied; a second one ends the process at once."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start_ranks(workload: str, config: TrainingConfig) -> None:
    if os.environ.get("GPUAGENT_DEBUG") != "1":
        # torch reads it when it is imported, here and in the ranks. Broken connections are told of in one line.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from gpuagent_workloads.training.launch import launch

    launch(workload, config)


def _announce(workload: str, phase: str, rank: int) -> None:
    if rank == 0:
        click.echo(f"{workload}: {phase}", err=True)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gpuagent")


def _print_summary(reporter: Reporter) -> None:
    if reporter.rank > 0:
        return
    width = max((len(result.name) for result in reporter.results), default=0)
    for result in reporter.results:
        value = f"{result.value:,.6g}" if isinstance(result.value, float) else str(result.value)
        click.echo(f"{result.name:<{width}}  {value}{' ' + result.unit if result.unit else ''}")
