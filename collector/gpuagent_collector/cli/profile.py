"""`collector profile`: show the operators and kernels of a step."""

from typing import Any

import click

from gpuagent_collector.cli.completing import facets, stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import check_facet, each_option
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import MOST, NAME
from gpuagent_common.errors import MisuseError

_EXAMPLES = """\b
Examples:
  collector profile mnist-1f2e3d4c5b
  collector profile mnist-1f2e3d4c5b mnist-5b4c3d2e1f
  collector profile bare docker --by environment --workload mnist
"""


@click.command(epilog=_EXAMPLES)
@click.argument("values", nargs=-1, required=True, metavar="A [B]")
@click.option(
    "--by",
    metavar="FACET",
    callback=check_facet,
    shell_complete=facets,
    help="Facet of which A and B are values, such as platform.  [default: runs]",
)
@click.option(
    "--workload",
    type=NAME,
    metavar="WORKLOAD",
    help="With --by, only runs of this workload.",
    shell_complete=stored_workloads,
)
@click.option("--experiment", type=NAME, metavar="NAME", help="With --by, only runs of this experiment.")
@click.option(
    "--top",
    type=click.IntRange(1, MOST),
    default=15,
    show_default=True,
    metavar="N",
    help="Most operations in a table; JSON, CSV and Markdown have all.",
)
@each_option
@answer_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    top: int,
    **asked: Any,
) -> None:
    """Show the operators and kernels that take a step's time.

    A is a run; B another one to compare it with. With --by, each side is the run of median throughput among traced runs
    that agree in everything else. FACET is one of those of `collector compare --help`. Runs on a GPU take a short trace
    of kernels; `gpuagent run --profile` traces operators too.
    """
    from gpuagent_collector.answers.profile import render, study_profile

    with reader.open() as opened:
        if not asked["by"] and (asked["workload"] or asked["experiment"]):
            raise MisuseError("--workload and --experiment need --by; leave them out for named runs")
        print_answer(render(study_profile(asking(opened, show_sql=show_sql), **asked), top=top), output_format)
