"""`collector query sql`: query the store with SQL."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gpuagent_collector.cli.options import ReaderOptions, ReadingCommand, reader_options
from gpuagent_collector.present.formats import FileFormat, OutputFormat
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted

_EXAMPLES = """\b
Examples:
  collector query sql "SHOW TABLES"
  collector query sql "DESCRIBE gpu_samples"
  collector query sql "SELECT platform, count(*) FROM runs GROUP BY ALL"
  collector query sql "FROM metrics WHERE metric = ?" -p throughput --json
  collector query sql "FROM steps" -o steps.parquet
  collector query sql - --format csv < samples.sql > samples.csv
"""

_FORMATS = list(dict.fromkeys(each.value for each in (*OutputFormat, *FileFormat)))
_ONLY_FILES = {each.value for each in FileFormat} - {each.value for each in OutputFormat}


@click.command(cls=ReadingCommand, epilog=_EXAMPLES)
@click.argument("words", metavar="[sql] SQL", nargs=-1)
@click.option("-p", "--parameter", "parameters", multiple=True, help="Value of the next ? in SQL; repeatable.")
@reader_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write all rows to this file.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_FORMATS),
    help="Output format.  [default: table; for a file, from its name]",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
def command(
    words: Sequence[str],
    parameters: Sequence[str],
    reader: ReaderOptions,
    output: Path | None,
    force: bool,
    format_name: str | None,
    as_json: bool,
) -> None:
    """Query the store with SQL.

    The word sql before the statement may be left out. SQL is one SELECT, EXPLAIN, DESCRIBE, SUMMARIZE or SHOW TABLES in
    DuckDB's dialect, and cannot change anything; - reads it from standard input. `collector schema` explains the tables
    and columns. Times are UTC. Names of files end in .parquet, .arrow, .feather, .csv, .jsonl, .json or .md; an
    incomplete file is never left.
    """
    statements = words[1:] if words[:1] == ("sql",) else words
    if len(statements) > 1:
        raise MisuseError(f"unexpected argument: {statements[1]}; quote the statement as one word")
    statement = statements[0] if statements else ""
    text = sys.stdin.read() if statement == "-" else statement
    if not text.strip():
        raise MisuseError('the statement is empty; give one, such as: collector query sql "SHOW TABLES"')
    format_name = "json" if as_json else format_name
    if output is None:
        if format_name in _ONLY_FILES:
            raise MisuseError(f"--format {format_name} needs a file: --output FILE")
        from gpuagent_collector.present.data import print_rows

        with reader.open() as store, store.stream(text, parameters) as answer:
            print_rows(answer.schema, answer, OutputFormat(format_name or OutputFormat.TABLE.value))
            if answer.truncated:
                click.echo("the answer was cut at the collector's limit of rows or bytes", err=True)
        return
    from gpuagent_collector.present.files import appearing, check_writable, format_of, write_rows
    from gpuagent_collector.present.human import notation

    if format_name == OutputFormat.TABLE.value:
        raise MisuseError("--format table is for the screen; write csv, jsonl, parquet or arrow to a file")
    file_format = FileFormat(format_name) if format_name else format_of(output)
    check_writable(output, force=force)
    with reader.open() as store, store.stream(text, parameters) as answer, appearing(output) as unfinished:
        write_rows(unfinished, answer.schema, answer, file_format)
        if answer.truncated:
            raise GpuAgentError(
                f"{output} is not written: the answer was cut at the collector's limit ({answer.rows:,} rows, "
                f"{answer.size_bytes:,} bytes); ask for less, or use `collector export`"
            )
        size_bytes = unfinished.stat().st_size
    size = notation([size_bytes], "bytes").write(size_bytes)
    click.echo(f"wrote {output}: {counted(answer.rows, 'row')}, {size}", err=True)
