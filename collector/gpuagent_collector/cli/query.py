"""`collector query`: SQL from the user."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_collector.output.formats import FileFormat, OutputFormat
from gpuagent_common.errors import GpuAgentError, MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.query.answer import Answer

_EXAMPLES = """\b
Examples:
  collector query sql "SHOW TABLES"
  collector query sql "DESCRIBE gpu_samples"
  collector query sql "SELECT platform, workload, count(*) AS runs FROM runs GROUP BY ALL"
  collector query sql "FROM metrics WHERE metric = ?" -p throughput --json
  collector query sql "FROM steps" -o steps.parquet
  collector query sql - --format csv < samples.sql > samples.csv
"""

_FORMATS = list(dict.fromkeys(each.value for each in (*OutputFormat, *FileFormat)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The file to write. `format_name` None: its name tells."""

    path: Path
    format_name: str | None
    force: bool

    def file_format(self) -> FileFormat:
        """Return the format to write; raise MisuseError where neither option nor name tells one."""
        from gpuagent_collector.output.files import format_of

        if self.format_name == OutputFormat.TABLE.value:
            raise MisuseError("a table is only printed; write --format csv, jsonl, parquet or arrow to a file")
        return FileFormat(self.format_name) if self.format_name else format_of(self.path)


@click.group()
def command() -> None:
    """Ask the store. Nothing can be changed by a query."""


@command.command(epilog=_EXAMPLES)
@click.argument("statement", metavar="SQL")
@click.option("-p", "--parameter", "parameters", multiple=True, help="Value of the next ? in the statement, as text.")
@reader_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the rows to this file: .parquet, .arrow, .feather, .csv, .jsonl, .json, .md. All of them, or no file.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_FORMATS),
    help="How to print, or what to write to the file.  [default: table; for a file, as its name ends]",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
def sql(
    statement: str,
    parameters: Sequence[str],
    reader: ReaderOptions,
    output: Path | None,
    force: bool,
    format_name: str | None,
    as_json: bool,
) -> None:
    """Run one SELECT, EXPLAIN, DESCRIBE, SUMMARIZE or SHOW TABLES in DuckDB's dialect; - reads it from standard input.

    `collector schema` says what the tables and columns mean. Times are UTC.
    """
    text = sys.stdin.read() if statement == "-" else statement
    if not text.strip():
        raise MisuseError('there is no statement; as in: collector query sql "SHOW TABLES"')
    format_name = "json" if as_json else format_name
    if output is None:
        _print(text, parameters, reader, _printed(format_name))
    else:
        _write(text, parameters, reader, _Target(path=output, format_name=format_name, force=force))


def _printed(format_name: str | None) -> OutputFormat:
    if format_name in {each.value for each in FileFormat} - {each.value for each in OutputFormat}:
        raise MisuseError(f"--format {format_name} is written to a file: --output FILE")
    return OutputFormat(format_name or OutputFormat.TABLE.value)


def _print(text: str, parameters: Sequence[str], reader: ReaderOptions, output_format: OutputFormat) -> None:
    from gpuagent_collector.output.printing import print_rows

    with reader.open() as store, store.stream(text, parameters) as answer:
        print_rows(answer.schema, answer, output_format)
        if answer.truncated:
            click.echo("the answer was cut short by the collector's limits of rows and bytes", err=True)


def _write(text: str, parameters: Sequence[str], reader: ReaderOptions, target: _Target) -> None:
    from gpuagent_collector.output.files import appearing, check_writable, write_rows
    from gpuagent_collector.output.human import counted, notation

    file_format = target.file_format()
    check_writable(target.path, force=target.force)
    with reader.open() as store, store.stream(text, parameters) as answer, appearing(target.path) as unfinished:
        write_rows(unfinished, answer.schema, answer, file_format)
        _check_whole(answer, target.path)
        size_bytes = unfinished.stat().st_size
    size = notation([size_bytes], "bytes").write(size_bytes)
    click.echo(f"wrote {target.path}: {counted(answer.rows, 'row')}, {size}", err=True)


def _check_whole(answer: "Answer", path: Path) -> None:
    if answer.truncated:
        raise GpuAgentError(
            f"the answer has more than the {answer.rows:,} rows ({answer.size_bytes:,} bytes) that the collector gives "
            f"of one, so {path} is not written; ask for less at a time, or see `collector export --help`"
        )
