"""The `collector` command. Modules of subcommands are imported when they are used, so that help stays quick."""

import sys
from importlib.util import find_spec
from typing import NoReturn

import click

from gpuagent_collector import __version__
from gpuagent_collector.present.new_files import for_owner_alone
from gpuagent_common.cli import LazyGroup, run_command_line

# The module of all commands that answer.
_ANSWERS = "gpuagent_collector.cli.answers"

# Subcommand → (MODULE:NAME of it, NAME being `command` unless stated, and its help in one line).
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("gpuagent_collector.cli.serve", "Receive from agents, store, and answer queries."),
    "compact": ("gpuagent_collector.cli.keeping:compact", "Merge a store's files, thin out and remove old samples."),
    "backup": ("gpuagent_collector.cli.keeping:backup", "Copy a store, also while a collector runs."),
    "restore": ("gpuagent_collector.cli.keeping:restore", "Put a backup in the place of a store."),
    "check": ("gpuagent_collector.cli.keeping:check", "Read a whole store and report damage."),
    "export": ("gpuagent_collector.cli.keeping:export", "Write the store, or chosen runs, as Parquet files."),
    "import": ("gpuagent_collector.cli.import_", "Merge an export, another store, a spool, a log or a result."),
    "publish": ("gpuagent_collector.cli.publish", "Add runs to MLflow or Trackio."),
    "delete": ("gpuagent_collector.cli.changing:delete", "Remove runs or a node."),
    "nodes": ("gpuagent_collector.cli.nodes", "List the nodes and their hardware."),
    "runs": ("gpuagent_collector.cli.runs", "List the runs, newest first."),
    "run": ("gpuagent_collector.cli.changing:run", "Correct labels, name and note of runs."),
    "jobs": (_ANSWERS, "List the jobs on all nodes, whoever launched them."),
    "job": (_ANSWERS, "Show what a job used of what it held."),
    "idle": (_ANSWERS, "List GPUs that jobs hold without using them."),
    "watch": ("gpuagent_collector.cli.watch", "Watch nodes, GPUs and runs live."),
    "query": ("gpuagent_collector.cli.query", "Query the store with SQL."),
    "schema": ("gpuagent_collector.cli.schema", "Print the meaning of tables and columns."),
    "show": (_ANSWERS, "Show everything about a run, or about several."),
    "compare": (_ANSWERS, "Compare platforms, GPUs or environments."),
    "plot": (_ANSWERS, "Draw a figure for print into a file."),
    "report": (_ANSWERS, "Write a comparison as an HTML page that needs no network."),
    "recommend": (_ANSWERS, "Recommend where a workload should run."),
    "prices": ("gpuagent_collector.cli.prices", "Convert a price catalogue to a price file."),
    "plan": (_ANSWERS, "Calculate the repeats that a new experiment needs."),
    "peers": (_ANSWERS, "Show where a run stands among its peers."),
    "outliers": (_ANSWERS, "Find nodes and GPUs that differ from their kind."),
    "history": (_ANSWERS, "Show the figures of a workload over time."),
    "scaling": (_ANSWERS, "Show how throughput grows with the number of ranks."),
    "serving": (_ANSWERS, "Compare servers of language models by their load."),
    "roofline": (_ANSWERS, "Compare runs with the limits of their device."),
    "profile": (_ANSWERS, "Show the operators and kernels that take a step's time."),
    "trace": ("gpuagent_collector.cli.trace", "Write a run as a trace for Perfetto."),
    "answer": ("gpuagent_collector.cli.answer", "Print and write the answer of an experiment."),
    "mcp": ("gpuagent_collector.cli.mcp", "Answer an assistant's questions, by MCP."),
    "launch": ("gpuagent_collector.cli.launch", "Launch a workload, program or experiment on agents."),
    "logs": ("gpuagent_collector.cli.logs", "Print the output of a run."),
    "cancel": ("gpuagent_collector.cli.changing:cancel", "Stop runs, running or queued."),
    "tokens": ("gpuagent_collector.cli.trust:tokens", "Make and revoke tokens of agents, viewers and operators."),
    "certs": ("gpuagent_collector.cli.trust:certs", "Make TLS certificates for a collector."),
}

# Heading of the help → its first subcommand.
_HEADINGS = {"Receive and keep": "serve", "Ask": "nodes", "Launch": "launch", "Trust": "tokens", "Shell": "completion"}


class _CollectorGroup(LazyGroup):
    """The group of all subcommands, listed under headings."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if COMMANDS.get(cmd_name, ("",))[0] != _ANSWERS:
            return super().get_command(ctx, cmd_name)
        from gpuagent_collector.cli.answers import command_of

        return command_of(cmd_name, COMMANDS[cmd_name][1])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        width = max(map(len, names))
        starts = [names.index(first) for first in _HEADINGS.values()]
        for heading, start, end in zip(_HEADINGS, starts, [*starts[1:], len(names)], strict=True):
            with formatter.section(heading):
                # The same width in all sections.
                formatter.write_dl([(name.ljust(width), self.summaries[name]) for name in names[start:end]])


@click.group("collector", cls=_CollectorGroup, modules=COMMANDS)
@click.version_option(__version__, prog_name="collector")
def cli() -> None:
    """Receive samples from agents, store them, compare platforms."""


class _WithoutPandas:
    """An importer that hides pandas: DuckDB would import it for the first parameter, half of a command's time."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is not used by commands", name=name)


def main() -> NoReturn:
    """Run the command line and exit."""
    if find_spec("duckdb") is None:
        sys.exit("collector: only the agent is installed; collector and bench need: pip install 'gpuagent[collector]'")
    sys.meta_path.insert(0, _WithoutPandas)
    with for_owner_alone():  # anyone who can read a store, or a copy of it, needs no token
        run_command_line(cli)
