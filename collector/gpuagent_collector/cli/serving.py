"""`collector serving`: show how servers of language models keep their latency under load."""

from typing import Any

import click

from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options, prices_option
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import limit_options, run_options, side_options
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import NAME

_EXAMPLES = """\b
Examples:
  collector serving --by platform --ttft 200
  collector serving --by parameter:server --ttft 200 --tpot 50 --at 99
  collector serving h200 l4 --by device --ttft 200 --prices prices.yaml
"""


@click.command(epilog=_EXAMPLES)
@side_options
@click.option(
    "--workload", type=NAME, metavar="WORKLOAD", help="Only runs of this workload.", shell_complete=stored_workloads
)
@run_options
@limit_options
@prices_option
@answer_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    percent: int | None,
    milliseconds: dict[str, float],
    **asked: Any,
) -> None:
    """Compare servers of language models by their load.

    Shows latency and tokens per second at each load of `serve-load`, the load at which two sides cross, and for each
    side the highest load that keeps the limits, with joules and cost of a token there. Without limits, those of the
    runs count.
    """
    from gpuagent_collector.answers.serving import render, study_serving
    from gpuagent_collector.compare.comparison import Request

    with reader.open() as opened:
        ask = asking(opened, show_sql=show_sql)
        study = study_serving(ask, Request(**asked), percent=percent, milliseconds=milliseconds)
        print_answer(render(study), output_format)
