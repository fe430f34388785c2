"""`collector compare`."""

import math
from typing import Any

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.options import ReaderOptions, format_options, reader_options, show_sql_option
from gpuagent_collector.cli.printing import print_exported
from gpuagent_collector.errors import MisuseError
from gpuagent_collector.output.formats import OutputFormat

_EXAMPLES = """\b
Examples:
  collector compare satori openshift
  collector compare --by interference --workload mnist
  collector compare bare docker --by environment --metric step_seconds
  collector compare gke-l4 gke-a100 --format csv > l4-a100.csv
"""


@click.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("values", nargs=-1, metavar="[PLATFORM_A PLATFORM_B ...]")
@click.option(
    "--by",
    default="platform",
    show_default=True,
    metavar="FACET",
    help="Compare values of platform, environment, interference, device, node or label:KEY; none named: all.",
)
@click.option("--baseline", metavar="VALUE", help="Compare with this one.  [default: the first]")
@click.option("--workload", metavar="WORKLOAD", help="Only runs of this workload.")
@click.option("--experiment", metavar="NAME", help="Only runs of this experiment.")
@click.option("--metric", metavar="METRIC", help="The one metric to test.  [default: throughput]")
@click.option(
    "--delta",
    "delta_percent",
    type=click.FloatRange(0, 100, min_open=True),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="What counts as equal.",
)
@click.option("--no-series", is_flag=True, help="Leave out the charts over time.")
@show_sql_option
@format_options
@reader_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    no_series: bool,
    delta_percent: float,
    **asked: Any,
) -> None:
    """Compare platforms, GPUs or environments by their runs.

    Runs are compared like with like: the same workload, parameters and circumstances. Of the primary metric it says
    whether the sides differ, are equal (=), neither is shown (~), or the runs are too few; all other metrics get 95 %
    intervals.
    """
    from gpuagent_collector.compare.comparison import Request, compare

    if math.isnan(delta_percent):
        raise MisuseError("--delta must be a number")
    with reader.open() as opened:
        ask = asking(opened, show_sql=show_sql)
        series = output_format is OutputFormat.TABLE and not no_series
        _print(compare(ask, Request(delta=delta_percent / 100, series=series, **asked)), output_format)


def _print(comparison: Any, output_format: OutputFormat) -> None:
    from rich.console import Console

    from gpuagent_collector.compare import export, terminal

    if output_format is OutputFormat.TABLE:
        terminal.print_comparison(Console(highlight=False), comparison)
        return
    print_exported(comparison, export, output_format)
