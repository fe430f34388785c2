"""`collector show`: everything about a run, or about the runs of a platform, an experiment or a workload."""

from typing import Any

import click

from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options, prices_option
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import each_option, run_options, stats_options
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import NAME

_EXAMPLES = """\b
Examples:
  collector show mnist-1f2e3d4c5b
  collector show satori --workload biggan --each gpu
  collector show layers --max
  collector show vgg16 --param batch-size=64
  collector show gke-l4 --format markdown > l4.md
"""


@click.command(epilog=_EXAMPLES)
@click.argument("name", required=False, metavar="[RUN|PLATFORM|EXPERIMENT|WORKLOAD]")
@click.option(
    "--workload", type=NAME, metavar="WORKLOAD", help="Only runs of this workload.", shell_complete=stored_workloads
)
@run_options
@stats_options
@each_option
@click.option("--all", "everything", is_flag=True, help="Show all metrics and charts.")
@prices_option
@answer_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    name: str | None,
    **asked: Any,
) -> None:
    """Show everything about a run, or about several.

    Prints the hardware, phases, every metric with its median, range and number of runs, curves, kernels, and the end of
    a run's output. RUN is a run's identity, or a unique beginning of it; curves are of the median run.
    """
    from gpuagent_collector.answers.show import render, study_show
    from gpuagent_collector.compare.comparison import Request

    with reader.open() as opened:
        print_answer(
            render(
                study_show(asking(opened, show_sql=show_sql), name, Request(**asked, every_chart=asked["everything"]))
            ),
            output_format,
        )
