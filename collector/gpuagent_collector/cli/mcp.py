"""`collector mcp`: answer an assistant's questions, over the Model Context Protocol on standard input and output."""

import io
import shlex
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_collector.errors import MissingPackageError
from gpuagent_common.errors import GpuAgentError, MisuseError

# Of what a tool returns, in characters: about a quarter of a small model's context.
_MOST_TEXT = 40_000
_MOST_ROWS = 1000

_INSTRUCTIONS = """\
gpuagent measures deep-learning runs on nodes, GPUs and containers, and stores them here. Begin with `runs`. `answer`
has the statistics: prefer it to figures of your own by `sql`. Quote an answer's verdict, its interval and its warnings.
Look up columns with `schema` before `sql`. Absent values were not measured; they are never 0."""

_EXAMPLES = """\b
Examples:
  collector mcp
  collector mcp --store results/july.duckdb
"""


@click.command(epilog=_EXAMPLES)
@reader_options
def command(reader: ReaderOptions) -> None:
    """Answer an assistant's questions, by MCP.

    It speaks the Model Context Protocol on standard input and output, and an assistant starts it itself. It can read
    what the token or the file shows, and change, write or open nothing else. The tools are answer, runs, sql, schema
    and options.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp_types import ToolAnnotations
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise MissingPackageError("assistants", "mcp") from None
    from gpuagent_collector import __version__

    tools = _Tools(reader)
    server = MCPServer("gpuagent", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (tools.answer, tools.runs, tools.sql, tools.schema, tools.options):
        server.tool(annotations=reads, structured_output=False)(_told(tool))
    server.run("stdio")


def _told(tool: Callable[..., str]) -> Callable[..., str]:
    """Return a tool whose errors reach the assistant, and whose text is not too long."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def told(*args: Any, **given: Any) -> str:
        try:
            text = tool(*args, **given)
        except GpuAgentError as error:
            raise ToolError(str(error)) from error
        if len(text) > _MOST_TEXT:
            text = f"{text[:_MOST_TEXT]}\n… cut after {_MOST_TEXT} of {len(text)} characters; ask for less"
        return text

    return told


class _Tools:
    """The tools; an assistant reads their docstrings."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options

    def answer(self, command: str) -> str:
        """Answer a question about stored runs, with a verdict, intervals, reasons and warnings, as Markdown.

        Args:
            command: a command and its arguments, such as `compare satori openshift`, `compare --by interference`,
                `show RUN`, `recommend mnist`, `plan`, `peers RUN`, `outliers`, `history mnist`, `scaling vgg16`,
                `serving`, `roofline`, `profile bare docker --by environment`. With --all it prints all that it found.
        """
        from gpuagent_collector.cli.answers import parse
        from gpuagent_collector.cli.printing import asking
        from gpuagent_collector.present.markdown import to_markdown

        try:
            words = shlex.split(command)
        except ValueError as error:
            raise MisuseError(f"{command[:80]!r} cannot be read: {error}") from error
        if any(word.startswith("--prices") for word in words):
            raise MisuseError("--prices names a file; its owner names it: GPUAGENT_PRICES=FILE collector mcp")
        entry, asked = parse(words)
        if entry.is_file or (entry.output and asked[entry.output]):
            raise MisuseError(f"this writes a file, and an assistant only reads; its owner runs: collector {command}")
        with self._options.open(is_named=False) as store:
            return to_markdown(entry.call(asking(store, show_sql=False), store.source, asked).document())

    def runs(
        self,
        workload: str | None = None,
        platform: str | None = None,
        experiment: str | None = None,
        status: str | None = None,
        limit: int = 20,
    ) -> str:
        """List the runs, newest first, with identity, settings, status, duration and throughput, as CSV.

        Args:
            workload: only runs of this workload.
            platform: only runs on this platform.
            experiment: only runs of this experiment.
            status: queued, running, succeeded, failed, cancelled, timed_out or lost.
            limit: most runs to list, up to 1000.
        """
        from gpuagent_collector.runs.listing import runs_sql

        named = {"workload": workload, "platform": platform, "experiment": experiment, "status": status}
        return self.sql(runs_sql(named, min(max(limit, 1), _MOST_ROWS), of_parts=False, names=()))

    def sql(self, statement: str) -> str:
        """Run one SELECT, DESCRIBE, SUMMARIZE or SHOW TABLES of DuckDB's SQL, and return at most 1,000 rows as CSV."""
        from gpuagent_collector.present.data import write_csv

        with self._options.open(is_named=False) as store:
            table = store.sql(statement)
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        write_csv(table.schema, table.slice(0, _MOST_ROWS).to_batches(), out)
        if table.num_rows > _MOST_ROWS:
            out.write(f"… the first {_MOST_ROWS} of {table.num_rows} rows\n")
        return out.buffer.getvalue().decode()

    def schema(self, table: str | None = None) -> str:
        """Describe the tables, or one table's columns with type, unit, definition and source.

        Args:
            table: its name; without, all tables are listed.
        """
        from gpuagent_collector.schema.describe import describe_store

        tables = sorted(describe_store(), key=lambda each: each.name)
        if table is None:
            return "\n".join(f"{each.name}: {each.definition}" for each in tables)
        chosen = next((each for each in tables if each.name == table), None)
        if chosen is None:
            raise MisuseError(f"the store has no table {table[:80]}; it has {', '.join(each.name for each in tables)}")
        columns = [
            f"{each.column} {each.type} [{each.unit}]: {each.definition} ({each.source})" for each in chosen.columns
        ]
        return "\n".join([f"{table}: {chosen.definition}", *columns])

    def options(self, command: str) -> str:
        """Return the help of a command that `answer` takes, with all its options.

        Args:
            command: its name, such as compare.
        """
        from gpuagent_collector.cli import COMMANDS
        from gpuagent_collector.cli.answers import ANSWERS, command_of

        if command not in ANSWERS:
            raise MisuseError(f"{command[:80]!r} cannot answer; use {', '.join(sorted(ANSWERS))}")
        found = command_of(command, COMMANDS[command][1])
        return found.get_help(click.Context(found, info_name=f"collector {command}"))
