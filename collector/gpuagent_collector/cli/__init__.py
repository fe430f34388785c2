"""The `collector` command. Modules of subcommands are imported when they are used, so that help stays quick."""

from typing import NoReturn

import click

from gpuagent_collector import __version__
from gpuagent_common.cli import LazyGroup, run_command_line

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
}


@click.group("collector", cls=LazyGroup, modules=COMMANDS)
@click.version_option(__version__, prog_name="collector")
def cli() -> None:
    """Receive what agents measure, keep it in DuckDB, and compare platforms."""


def main() -> NoReturn:
    """Run the command line and exit."""
    run_command_line(cli)
