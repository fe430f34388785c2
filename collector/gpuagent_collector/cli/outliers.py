"""`collector outliers`: find nodes and GPUs that differ from their kind."""

from typing import Any

import click

from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import delta_option, run_options
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import MOST, NAME, Number

_EXAMPLES = """\b
Examples:
  collector outliers
  collector outliers --experiment fleet-check
  collector outliers --workload resnet50 --last 1 --json
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--workload", type=NAME, metavar="WORKLOAD", help="Only runs of this workload.", shell_complete=stored_workloads
)
@run_options
@click.option(
    "--last",
    type=click.IntRange(1, MOST),
    default=5,
    show_default=True,
    help="Runs of each node or GPU that count, the newest.",
)
@click.option(
    "--rate",
    type=Number(0, 100, min_open=True, max_open=True),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    callback=lambda _context, _option, percent: percent / 100,
    help="Share of false findings to accept, on average.",
)
@delta_option
@answer_options
def command(reader: ReaderOptions, output_format: OutputFormat, show_sql: bool, **asked: Any) -> None:
    """Find nodes and GPUs that differ from their kind.

    Compares throughput, rates that were measured, step time, power, clock, temperature and waiting of each node, GPU
    and rank with all others that ran the same on the same GPU model. Facts in which one differs from nearly all others,
    such as the lanes of its link, and errors of its memory are listed beside. The built-in experiment `fleet-check`
    measures a node for it in three minutes.
    """
    from gpuagent_collector.answers.outliers import Request, find_outliers, render

    with reader.open() as opened:
        print_answer(render(find_outliers(asking(opened, show_sql=show_sql), Request(**asked))), output_format)
