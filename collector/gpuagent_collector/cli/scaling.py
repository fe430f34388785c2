"""`collector scaling`."""

from typing import Any

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, format_options, prices_option, reader_options, show_sql_option
from gpuagent_collector.output.formats import OutputFormat

_EXAMPLES = """\b
Examples:
  collector scaling vgg16
  collector scaling vgg16 --platform satori --experiment ddp
  collector scaling vgg16 --by nodes
  collector scaling --format csv > scaling.csv
"""


@click.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("workload", required=False, shell_complete=stored_workloads)
@click.option("--platform", metavar="NAME", help="Only runs on this platform.")
@click.option("--experiment", metavar="NAME", help="Only runs of this experiment.")
@click.option(
    "--by",
    type=click.Choice(["ranks", "nodes"]),
    default="ranks",
    show_default=True,
    help="What grows; by nodes each of them has the same number of ranks.",
)
@prices_option
@show_sql_option
@format_options
@reader_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    **asked: Any,
) -> None:
    """Show how the throughput of WORKLOAD, or of all, grows with the number of ranks, or of nodes.

    Runs make a curve that agree in all but their ranks: workload, place, GPU model, parameters, and either the batch of
    each rank (weak scaling) or that of all ranks together (strong scaling). Speed-up is against the fewest ranks.
    """
    from gpuagent_collector.output.rendering import print_answer
    from gpuagent_collector.scaling.export import render
    from gpuagent_collector.scaling.study import study_scaling

    with reader.open() as opened:
        print_answer(render(study_scaling(asking(opened, show_sql=show_sql), **asked)), output_format)
