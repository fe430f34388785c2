"""`collector logs`: what a run's program wrote."""

from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.options import CollectorOptions, collector_options
from gpuagent_collector.output.text import harmless

if TYPE_CHECKING:
    from gpuagent_collector.launching.output import Printer
    from gpuagent_collector.query.remote import RemoteReader

_EXAMPLES = """\b
Examples:
  collector logs mnist-1f2e3d4c5b
  collector logs mnist-1f2e -f
  collector logs mnist-1f2e --all > mnist.log
"""

_TELLING = ("succeeded", "failed", "cancelled", "timed_out")
"""Statuses of runs whose output, if there is any, is in the store."""


@click.command(epilog=_EXAMPLES)
@click.argument("name", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended; Ctrl-C leaves it running.")
@click.option("--all", "from_start", is_flag=True, help="From the first byte, as long as the node keeps it.")
@collector_options
def command(name: str, *, follow: bool, from_start: bool, collector: CollectorOptions) -> None:
    """Print the end of what a run's program wrote: its stdout on stdout, its stderr on stderr.

    RUN is a run's identity, or as much of its beginning as no other has. Of a run that has ended the store has the last
    8 KiB of each; all else comes from the node through its agent, in whole lines. What looks like a secret is left out.
    """
    from gpuagent_collector.launching.names import find_run
    from gpuagent_collector.launching.output import Printer, stored_output

    with collector.open() as reader:
        ask = asking(reader, show_sql=False)
        run = find_run(ask, name)
        printer = Printer()
        stored = stored_output(ask, run.run_id) if run.has_ended and not from_start else {}
        for stream, text in stored.items():
            printer.print(stream, text)
        if not stored and (run.status not in _TELLING or from_start):
            _print_from_agent(reader, run.run_id, printer, follow=follow, from_start=from_start)
        elif not stored:
            click.echo(f"collector: {harmless(run.run_id)} has written nothing", err=True)
        printer.close()


def _print_from_agent(
    reader: "RemoteReader", run_id: str, printer: "Printer", *, follow: bool, from_start: bool
) -> None:
    from gpuagent_collector.launching.client import RunsClient

    for message in RunsClient(reader).output(run_id, follow=follow, from_start=from_start):
        if message.notice:
            click.echo(f"collector: {harmless(message.notice)}", err=True)
        else:
            printer.print(message.stream, message.text)
