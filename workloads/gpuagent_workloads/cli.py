"""The command line: `python -m gpuagent_workloads list | run | prepare`."""

import os
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
from gpuagent_workloads.errors import MisuseError, WorkloadError
from gpuagent_workloads.registry import WORKLOADS, find
from gpuagent_workloads.report import Reporter, Result
from gpuagent_workloads.workload import Workload


class Terminated(BaseException):
    """SIGTERM arrived. Not an Exception: it passes through handlers of errors, as KeyboardInterrupt does."""


@click.group(help="Deep-learning workloads that report their phases, steps and results through a run directory.")
def cli() -> None:
    """Hold the commands."""


@cli.command("list")
@click.option("--json", "as_json", is_flag=True, help="A JSON array, for programs.")
def list_workloads(as_json: bool) -> None:
    """List the workloads with their parameters."""
    click.echo(listing.as_json(WORKLOADS) if as_json else listing.as_text(WORKLOADS))


@cli.command()
@click.argument("name", metavar="WORKLOAD")
@click.option("--data", type=click.Path(path_type=Path), help="Where to put it.  [default: ~/.cache/gpuagent/WORKLOAD]")
@click.option("--mirror", "mirrors", multiple=True, metavar="URL", help="Fetch from this folder instead; repeatable.")
def prepare(name: str, data: Path | None, mirrors: tuple[str, ...]) -> None:
    """Fetch a workload's data. The only command that uses the network."""
    workload = find(name)
    if workload.prepare is None:
        click.echo(f"{workload.name} needs no data.")
        return
    directory = data or _cache() / workload.name
    workload.prepare(directory, mirrors)
    click.echo(f"Ready. To use it: python -m gpuagent_workloads run {workload.name} --data {directory}")


def execute(workload: Workload[Any], config: Any) -> None:
    """Run a workload with its reporter, then print its results."""
    reporter = Reporter.from_environment(on_phase=lambda phase: click.echo(f"{workload.name}: {phase}", err=True))
    try:
        with reporter:
            workload.run(config, reporter)
    finally:
        if reporter.rank == 0:
            _print_summary(reporter.results)


cli.add_command(
    WorkloadGroup(execute, name="run", help="Run a workload to its end.", subcommand_metavar="WORKLOAD ...")
)


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code: 0 done, 1 failed, 2 misuse, 130 interrupted, 143 terminated."""
    try:
        with _sigterm_raises():
            cli.main(list(arguments) or ["--help"], prog_name="python -m gpuagent_workloads", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT
    except Terminated:
        return 128 + signal.SIGTERM
    except MisuseError as error:
        return _complain(str(error), 2)
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code)
    except WorkloadError as error:
        return _complain(str(error), 1)
    except ModuleNotFoundError as error:
        return _complain(f"{error.name} is not installed here: pip install 'gpuagent[workloads]'", 1)
    except Exception as error:  # noqa: BLE001 - the boundary: whatever failed becomes one line
        return _complain(f"{type(error).__name__}: {error} (GPUAGENT_DEBUG=1 shows where)", 1)
    return 0


def _complain(message: str, code: int) -> int:
    if os.environ.get("GPUAGENT_DEBUG") == "1":
        traceback.print_exc()
    print(f"error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201 - click.echo may be what failed
    return code


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


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gpuagent")


def _print_summary(results: Sequence[Result]) -> None:
    width = max((len(result.name) for result in results), default=0)
    for result in results:
        value = f"{result.value:,.6g}" if isinstance(result.value, float) else str(result.value)
        click.echo(f"{result.name:<{width}}  {value}{' ' + result.unit if result.unit else ''}")
