"""`collector watch`: how things stand now, live or once."""

import sys
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.options import ReaderOptions, reader_options, show_sql_option

if TYPE_CHECKING:
    from gpuagent_collector.watch.snapshot import Snapshot

_EXAMPLES = """\b
Examples:
  collector watch
  collector watch --collector login-1:50051 --interval 5
  collector watch --once
  collector watch --json | jq '.nodes[] | select(.sample_age_seconds == null) | .hostname'
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--interval",
    "interval_seconds",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Print how things stand, and end; so it does where there is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one snapshot as JSON, with everything that was read.")
@reader_options
@show_sql_option
def command(*, interval_seconds: float, once: bool, as_json: bool, reader: ReaderOptions, show_sql: bool) -> None:
    """Watch nodes, GPUs and runs; ? lists the keys.

    Nodes that delivered within the last hour are shown, and runs that are under way or ended in that time.
    """
    from gpuagent_collector.output.terminal import plain_console
    from gpuagent_collector.watch.snapshot import take_snapshot

    console = plain_console(sys.stdout)
    is_live = not (once or as_json or show_sql) and sys.stdin.isatty() and console.is_terminal
    with reader.open() as store:
        ask = asking(store, show_sql=show_sql)
        first = take_snapshot(ask)
        if is_live and not console.is_dumb_terminal:
            from gpuagent_collector.watch.live import watch

            watch(
                lambda: take_snapshot(ask),
                first,
                source=store.source,
                interval_seconds=interval_seconds,
                keyboard=sys.stdin.fileno(),
                console=console,
            )
        else:
            _print(first, as_json=as_json)


def _print(snapshot: "Snapshot", *, as_json: bool) -> None:
    from gpuagent_collector.output.terminal import plain_console
    from gpuagent_collector.watch.export import to_json
    from gpuagent_collector.watch.frame import snapshot_lines

    if as_json:
        click.echo(to_json(snapshot))
        return
    console = plain_console(sys.stdout)
    for line in snapshot_lines(snapshot, console.width):
        console.print(line, no_wrap=True, crop=False)
