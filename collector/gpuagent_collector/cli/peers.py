"""`collector peers`: show where a run stands among its peers."""

from typing import Any

import click

from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import each_option, run_options
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import NAME

_EXAMPLES = """\b
Examples:
  collector peers
  collector peers resnet50-1f2e3d4c5b
  collector peers gpu-node-7 --workload resnet50
  collector peers resnet50-1f2e3d4c5b --each gpu --json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("name", required=False, metavar="[RUN|NODE]")
@click.option(
    "--workload", type=NAME, metavar="WORKLOAD", help="Only runs of this workload.", shell_complete=stored_workloads
)
@run_options
@each_option
@click.option("--all", "everything", is_flag=True, help="Show every metric.")
@answer_options
def command(reader: ReaderOptions, output_format: OutputFormat, show_sql: bool, **asked: Any) -> None:
    """Show where a run stands among its peers.

    Peers are runs on other nodes with the same workload, parameters and circumstances on the same GPU model. Shows the
    percentile of each figure, the range of most peers, and the peers by driver, software and link where these differ.
    RUN is a run's identity or a unique beginning of it; of a NODE its newest run counts.
    """
    from gpuagent_collector.answers.peers import Request, find_peers, render

    with reader.open() as opened:
        print_answer(render(find_peers(asking(opened, show_sql=show_sql), Request(**asked))), output_format)
