"""`collector compare`."""

from typing import Any

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, format_options, prices_option, reader_options, show_sql_option
from gpuagent_collector.cli.selection import delta_option, run_options, side_options, tested_options
from gpuagent_collector.output.formats import OutputFormat

_EXAMPLES = """\b
Examples:
  collector compare satori openshift
  collector compare --by interference --workload mnist
  collector compare bare docker --by environment --metric step_seconds
  collector compare --by platform,environment satori,docker openshift,podman
  collector compare vm container --workload resnet18 --stat max --where "started_at > '2026-11-01'"
  collector compare gke-l4 gke-a100 --format csv > l4-a100.csv
"""


@click.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@side_options
@click.option("--workload", metavar="WORKLOAD", help="Only runs of this workload.", shell_complete=stored_workloads)
@run_options
@tested_options
@delta_option
@click.option("--all", "everything", is_flag=True, help="Show all warnings, metrics, hardware and charts.")
@click.option("--no-series", is_flag=True, help="With --all, leave out the charts over time.")
@prices_option
@show_sql_option
@format_options
@reader_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    no_series: bool,
    **asked: Any,
) -> None:
    """Compare platforms, GPUs or environments by their runs.

    Runs are compared like with like: the same workload, parameters and circumstances. Of the primary metric it says
    whether the sides differ, are equal (=), neither is shown (~), or the runs are too few; all other metrics get 95 %
    intervals.
    """
    from gpuagent_collector.compare.comparison import Request, compare
    from gpuagent_collector.compare.export import render
    from gpuagent_collector.output.rendering import print_answer

    with reader.open() as opened:
        ask = asking(opened, show_sql=show_sql)
        series = output_format is OutputFormat.TABLE and asked["everything"] and not no_series
        print_answer(render(compare(ask, Request(series=series, **asked))), output_format)
