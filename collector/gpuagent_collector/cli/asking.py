"""The `Ask` of commands that put several questions to a reader."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpuagent_collector.query.ask import Ask
    from gpuagent_collector.query.execute import Parameter
    from gpuagent_collector.query.reader import Reader


def asking(reader: "Reader", *, show_sql: bool) -> "Ask":
    """Return a callable that runs one SELECT on `reader`, and with `show_sql` prints each on stderr."""

    def ask(sql: str, parameters: "Sequence[Parameter]" = ()) -> list[dict[str, Any]]:
        if show_sql:
            from gpuagent_collector.query.literal import with_values

            click.echo(f"{with_values(sql.strip(), parameters)};\n", err=True)
        return reader.sql(sql, parameters).to_pylist()

    return ask
