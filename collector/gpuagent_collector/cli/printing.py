"""Lines on stderr that several commands print, and the `Ask` that prints its statements there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuagent_common.text import harmless

if TYPE_CHECKING:
    from gpuagent_collector.query.ask import Ask
    from gpuagent_collector.query.execute import Parameter
    from gpuagent_collector.query.reader import Reader


def print_error(words: str) -> None:
    """Print a line on stderr, escaped, with the program's name before it."""
    click.echo(f"collector: {harmless(words)}", err=True)


def print_rows_of(table: str, rows: int) -> None:
    """Print a table's number of rows on stderr, unless it has none."""
    if rows:
        click.echo(f"  {harmless(table):<20} {rows:>13,} {'row' if rows == 1 else 'rows'}", err=True)


def asking(reader: "Reader", *, show_sql: bool, statements: list[str] | None = None) -> "Ask":
    """Return a callable that runs one SELECT on `reader`; it prints each on stderr with `show_sql`.

    Where `statements` are given, each is added to them.
    """
    from gpuagent_collector.query.literal import list_text, with_values
    from gpuagent_collector.query.rows import rows_of

    def ask(sql: str, parameters: "Sequence[Parameter]" = ()) -> list[dict[str, Any]]:
        if show_sql or statements is not None:
            statement = with_values(sql.strip(), parameters)
            if show_sql:
                click.echo(f"{statement};\n", err=True)
            if statements is not None:
                statements.append(statement)
        given = [list_text(value) if isinstance(value, list) else value for value in parameters]
        return rows_of(reader.sql(sql, given))

    return ask
