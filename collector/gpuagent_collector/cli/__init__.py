"""The `collector` command. Modules of subcommands are imported when they are used, so that help stays quick."""

import io
import os
import sys
from importlib import import_module
from typing import NoReturn

import click

from gpuagent_collector import __version__
from gpuagent_collector.output.text import harmless
from gpuagent_common.errors import GpuAgentError, MisuseError

# Subcommand → (module whose `command` it is, its help in one line).
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("gpuagent_collector.cli.serve", "Receive from agents, store, and answer queries."),
    "query": ("gpuagent_collector.cli.query", "Ask the store with SQL."),
    "schema": ("gpuagent_collector.cli.schema", "Say what each table and column means."),
    "nodes": ("gpuagent_collector.cli.nodes", "List the nodes and their hardware."),
    "watch": ("gpuagent_collector.cli.watch", "Watch nodes, GPUs and runs as they are now."),
    "runs": ("gpuagent_collector.cli.runs", "List the runs, newest first."),
    "launch": ("gpuagent_collector.cli.launch", "Have connected agents run something."),
    "cancel": ("gpuagent_collector.cli.cancel", "Stop runs, wherever they run or wait."),
    "logs": ("gpuagent_collector.cli.logs", "Print what a run wrote."),
    "compare": ("gpuagent_collector.cli.compare", "Compare platforms, GPUs or environments."),
    "report": ("gpuagent_collector.cli.report", "Write a comparison with charts as one HTML file."),
    "recommend": ("gpuagent_collector.cli.recommend", "Say where a workload should run, and why."),
    "plan": ("gpuagent_collector.cli.plan", "Say how many repeats a new experiment needs."),
    "scaling": ("gpuagent_collector.cli.scaling", "Show how throughput grows with the number of ranks."),
    "roofline": ("gpuagent_collector.cli.roofline", "Show what runs reach of what their device can do."),
    "profile": ("gpuagent_collector.cli.profile", "Show which operators and kernels took the time of a step."),
    "export": ("gpuagent_collector.cli.export", "Write the store, or chosen runs, for another collector."),
    "import": ("gpuagent_collector.cli.import_", "Merge another collector's export, or an agent's spool."),
    "compact": ("gpuagent_collector.cli.compact", "Keep a store small: merge its files, remove old samples."),
    "backup": ("gpuagent_collector.cli.backup", "Copy a store, running or not."),
    "check": ("gpuagent_collector.cli.check", "Read a store to the last row, and say whether it is sound."),
    "delete": ("gpuagent_collector.cli.delete", "Remove runs or a node."),
    "certs": ("gpuagent_collector.cli.certs", "Make certificates for a collector that other machines reach."),
    "tokens": ("gpuagent_collector.cli.tokens", "Make and revoke tokens of agents, viewers and operators."),
    "completion": ("gpuagent_collector.cli.completion", "Print the completion script of a shell."),
}


class _LazyGroup(click.Group):
    """A group that knows its subcommands' names and imports one when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command = import_module(module).command
        assert isinstance(command, click.Command)  # noqa: S101 - narrows what import_module cannot tell
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="collector")
def cli() -> None:
    """Receive what agents measure, keep it in DuckDB, and compare platforms."""


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 misuse, 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where the locale is not UTF-8, ? stands for what it cannot show
    # gRPC's core would write a line of its own about every handshake that fails, beside ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    sys.exit(_run())


def _run() -> int:
    try:
        status = cli.main(prog_name="collector", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # what DuckDB makes of Ctrl-C while it executes
            return 130
        raise
    except GpuAgentError as error:
        click.echo(f"collector: {harmless(str(error))}", err=True)
        return 2 if isinstance(error, MisuseError) else 1
    except OSError as error:
        click.echo(f"collector: {error}", err=True)
        return 1
    return status if isinstance(status, int) else 0
