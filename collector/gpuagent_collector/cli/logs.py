"""`collector logs`: what a run's program wrote."""

from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.options import CollectorOptions, collector_options
from gpuagent_collector.output.text import harmless
from gpuagent_common.errors import GpuAgentError

if TYPE_CHECKING:
    from gpuagent_collector.launching.names import RunPart
    from gpuagent_collector.launching.output import Printer
    from gpuagent_collector.query.remote import RemoteReader

_EXAMPLES = """\b
Examples:
  collector logs mnist-1f2e3d4c5b
  collector logs mnist-1f2e -f
  collector logs mnist-1f2e --all > mnist.log
  collector logs gpt-77aa -f --node gpu-3
"""

# Statuses of runs whose output, if there is any, is in the store.
_TELLING = ("succeeded", "failed", "cancelled", "timed_out")


@click.command(epilog=_EXAMPLES)
@click.argument("name", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended; Ctrl-C leaves it running.")
@click.option("--all", "from_start", is_flag=True, help="From the first byte, as long as the node keeps it.")
@click.option("--node", metavar="NAME", help="Of a run on several nodes, what it wrote on this one.")
@collector_options
def command(name: str, *, follow: bool, from_start: bool, node: str | None, collector: CollectorOptions) -> int:
    """Print the end of what a run's program wrote: its stdout on stdout, its stderr on stderr.

    RUN is a run's identity, or as much of its beginning as no other has. Of a run that has ended the store has the last
    8 KiB of each; all else comes from the node through its agent, in whole lines. What looks like a secret is left out.
    Of a run on several nodes, one node after the other below its name.
    """
    from gpuagent_collector.launching.names import find_parts, find_run, only_part

    with collector.open() as reader:
        ask = asking(reader, show_sql=False)
        parts = find_parts(ask, find_run(ask, name), node)
        if follow or len(parts) == 1:
            _print_part(reader, only_part(parts), follow=follow, from_start=from_start)
            return 0
        printed = [_print_one_of_several(reader, part, from_start=from_start) for part in parts]
    return int(not all(printed))


def _print_one_of_several(reader: "RemoteReader", part: "RunPart", *, from_start: bool) -> bool:
    """Print a node's name and what the run wrote there; return whether that could be had."""
    click.echo(f"==> {harmless(part.node)} <==")
    try:
        _print_part(reader, part, follow=False, from_start=from_start)
    except GpuAgentError as error:
        click.echo(f"collector: {harmless(str(error))}", err=True)
        return False
    return True


def _print_part(reader: "RemoteReader", part: "RunPart", *, follow: bool, from_start: bool) -> None:
    from gpuagent_collector.launching.output import Printer, stored_output

    printer = Printer()
    is_stored = part.has_ended and not from_start
    stored = stored_output(asking(reader, show_sql=False), part) if is_stored else {}
    for stream, text in stored.items():
        printer.print(stream, text)
    if not stored and (part.status not in _TELLING or from_start):
        _print_from_agent(reader, part, printer, follow=follow, from_start=from_start)
    elif not stored:
        click.echo(f"collector: {harmless(part.run_id)} has written nothing", err=True)
    printer.close()


def _print_from_agent(
    reader: "RemoteReader", part: "RunPart", printer: "Printer", *, follow: bool, from_start: bool
) -> None:
    from gpuagent_collector.launching.client import RunsClient

    for message in RunsClient(reader).output(
        part.run_id, node_uuid=part.node_uuid, follow=follow, from_start=from_start
    ):
        if message.notice:
            click.echo(f"collector: {harmless(message.notice)}", err=True)
        else:
            printer.print(message.stream, message.text)
