"""`collector watch`: nodes, GPUs and runs as they are now, live or once."""

import sys
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import (
    ReaderOptions,
    ReadingCommand,
    format_options,
    reader_options,
    show_sql_option,
)
from gpuagent_collector.cli.printing import asking
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import MOST_SECONDS, Number

if TYPE_CHECKING:
    from gpuagent_collector.watch.snapshot import Snapshot

_EXAMPLES = """\b
Examples:
  collector watch
  collector watch --collector login-1:50051 --interval 5
  collector watch --once
  collector watch --json | jq '.nodes[] | select(.sample_age_seconds == null) | .hostname'
"""


@click.command(cls=ReadingCommand, epilog=_EXAMPLES)
@click.option(
    "--interval",
    "interval_seconds",
    type=Number(0.5, MOST_SECONDS),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two snapshots.",
)
@click.option("--once", is_flag=True, help="Print one snapshot and exit; the default without a terminal.")
@format_options
@reader_options
@show_sql_option
def command(
    *, interval_seconds: float, once: bool, output_format: OutputFormat, reader: ReaderOptions, show_sql: bool
) -> None:
    """Watch nodes, GPUs and runs; ? lists the keys.

    Shown are nodes that delivered within the last hour, and runs that are under way or ended within it.
    """
    from gpuagent_collector.present.terminal import plain_console
    from gpuagent_collector.watch.snapshot import take_snapshot

    console = plain_console(sys.stdout)
    has_terminal = sys.stdin.isatty() and console.is_terminal and not console.is_dumb_terminal
    with reader.open() as store:
        ask = asking(store, show_sql=show_sql)

        def take() -> "Snapshot":
            return take_snapshot(ask, lambda: store.trouble)

        first = take()
        if once or show_sql or not has_terminal or output_format is not OutputFormat.TABLE:
            from gpuagent_collector.watch.view import print_snapshot

            print_snapshot(first, output_format, reader.words)
        else:
            from gpuagent_collector.watch.app import watch

            watch(take, first, source=store.source, interval_seconds=interval_seconds)
