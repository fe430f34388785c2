"""`collector scaling`: show how throughput grows with ranks or nodes."""

from typing import Any

import click

from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options, prices_option
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import NAME

_EXAMPLES = """\b
Examples:
  collector scaling vgg16
  collector scaling vgg16 --platform satori --experiment ddp
  collector scaling vgg16 --by nodes
  collector scaling --format csv > scaling.csv
"""


@click.command(epilog=_EXAMPLES)
@click.argument("workload", required=False, shell_complete=stored_workloads)
@click.option("--platform", type=NAME, metavar="NAME", help="Only runs on this platform.")
@click.option("--experiment", type=NAME, metavar="NAME", help="Only runs of this experiment.")
@click.option(
    "--by",
    type=click.Choice(["ranks", "nodes"]),
    default="ranks",
    show_default=True,
    help="The number that grows; all nodes have as many ranks.",
)
@prices_option
@answer_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    **asked: Any,
) -> None:
    """Show how throughput grows with the number of ranks.

    A curve is made of runs that differ only in their ranks (or nodes): same workload, place, GPU model and parameters.
    The same batch per rank makes it weak scaling, the same total batch strong scaling. Speed-up is relative to the
    fewest ranks.
    """
    from gpuagent_collector.answers.scaling import render
    from gpuagent_collector.answers.scaling_curves import study_scaling

    with reader.open() as opened:
        print_answer(render(study_scaling(asking(opened, show_sql=show_sql), **asked)), output_format)
