"""`collector profile`."""

from typing import Any

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, format_options, reader_options, show_sql_option
from gpuagent_collector.output.formats import OutputFormat
from gpuagent_common.errors import MisuseError

_EXAMPLES = """\b
Examples:
  collector profile mnist-1f2e3d4c5b
  collector profile mnist-1f2e3d4c5b mnist-5b4c3d2e1f
  collector profile bare docker --by environment --workload mnist
"""


@click.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("values", nargs=-1, required=True, metavar="A [B]")
@click.option(
    "--by",
    metavar="FACET",
    help="A and B are values of platform, environment, interference, limits, device, node, nodes, parameter:KEY or "
    "label:KEY.  [default: runs]",
)
@click.option(
    "--workload", metavar="WORKLOAD", help="With --by, only runs of this workload.", shell_complete=stored_workloads
)
@click.option("--experiment", metavar="NAME", help="With --by, only runs of this experiment.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=15,
    show_default=True,
    metavar="N",
    help="At most so many operations in a table; JSON, CSV and Markdown have all.",
)
@show_sql_option
@format_options
@reader_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    top: int,
    **asked: Any,
) -> None:
    """Show which operators and kernels took the time of a step, in run A or in A and B side by side.

    With --by, each side is the median run, by throughput, of those with a trace that agree in all else. Runs on a GPU
    take a short trace of kernels; with `--profile` runs trace operators, too.
    """
    from gpuagent_collector.output.rendering import print_answer
    from gpuagent_collector.profile.export import render
    from gpuagent_collector.profile.study import study_profile

    with reader.open() as opened:
        if not asked["by"] and (asked["workload"] or asked["experiment"]):
            raise MisuseError("--workload and --experiment go with --by; of runs that are named they choose nothing")
        print_answer(render(study_profile(asking(opened, show_sql=show_sql), **asked), top=top), output_format)
