"""`collector logs`: the output of a run."""

from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import ReaderOptions, ReadingCommand, node_option, reader_options
from gpuagent_collector.cli.printing import asking, print_error
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import harmless

if TYPE_CHECKING:
    from gpuagent_collector.query.named_runs import NamedRun
    from gpuagent_collector.query.reader import Reader

_EXAMPLES = """\b
Examples:
  collector logs mnist-1f2e3d4c5b
  collector logs mnist-1f2e -f
  collector logs mnist-1f2e --all > mnist.log
  collector logs gpt-77aa -f --node gpu-3
"""

# The stored end of a stream has 8 KiB at most, less what is no whole character, or is hidden.
_CUT_BYTES = 8 * 1024 - 64

# Statuses of runs whose output, if there is any, is in the store.
_STORED = ("succeeded", "failed", "cancelled", "timed_out")


@click.command(cls=ReadingCommand, epilog=_EXAMPLES)
@click.argument("name", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Continue until the run ends; Ctrl-C leaves it running.")
@click.option("--all", "from_start", is_flag=True, help="Start at the first byte that the node still has.")
@node_option("Of a run on several nodes, only the output on this one.")
@reader_options
def command(name: str, *, follow: bool, from_start: bool, node: str | None, reader: ReaderOptions) -> int:
    """Print the output of a run.

    Its stdout goes to stdout, its stderr to stderr. RUN is a run's identity, or a unique beginning of it. The store has
    the last 8 KiB of each stream of an ended run; anything else comes from the node through its agent, in whole lines.
    Text that looks like a secret is hidden. A run on several nodes is printed node by node, each below its name.
    """
    from gpuagent_collector.launching.runs import find_parts, get_only_part
    from gpuagent_collector.query.named_runs import find_run
    from gpuagent_collector.query.remote import RemoteReader

    with reader.open(is_named=False) as opened:
        ask = asking(opened, show_sql=False)
        run = find_run(ask, name)
        if run.status is None and not isinstance(opened, RemoteReader):
            raise MisuseError(f"there is no run {name}; `collector runs` lists them")
        parts = find_parts(ask, run, node)
        if follow or len(parts) == 1:
            _print_part(opened, get_only_part(parts), follow=follow, from_start=from_start)
            return 0
        failed = False
        for part in parts:
            click.echo(f"==> {harmless(part.node)} <==")
            try:
                _print_part(opened, part, follow=False, from_start=from_start)
            except GpuAgentError as error:
                failed = True
                print_error(str(error))
    return int(failed)


def _print_part(reader: "Reader", part: "NamedRun", *, follow: bool, from_start: bool) -> None:
    """Print the output on one node: from the store if the run has ended, else from its agent."""
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.runs import Printer, read_stored_output
    from gpuagent_collector.query.remote import RemoteReader

    printer = Printer()
    is_stored = part.has_ended and not from_start
    stored = read_stored_output(asking(reader, show_sql=False), part) if is_stored else {}
    for stream, text in stored.items():
        whole = text
        if len(text.encode()) > _CUT_BYTES:
            whole = text.partition("\n")[2] or text  # without the end of a line
            print_error(f"the end of {stream}; while the node has the rest, --all prints it")
        printer.print(stream, whole)
    if not stored and (part.status not in _STORED or from_start):
        if not isinstance(reader, RemoteReader):
            raise GpuAgentError(
                f"{reader.source} has the end of the output of ended runs only; for more, give --collector HOST:PORT"
            )
        output = RunsClient(reader).output(part.run_id, node_uuid=part.node_uuid, follow=follow, from_start=from_start)
        for message in output:
            if message.notice:
                print_error(message.notice)
            else:
                printer.print(message.stream, message.text)
    elif not stored:
        print_error(f"{part.run_id} has written nothing")
    printer.close()
