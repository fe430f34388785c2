"""`collector roofline`: compare runs with the limits of their device."""

from typing import Any

import click

from gpuagent_collector.cli.completing import facets, stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import check_facet
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import NAME

_EXAMPLES = """\b
Examples:
  collector roofline
  collector roofline resnet18 gpt --platform gke-l4
  collector roofline mnist --by label:driver --format csv > roofline.csv
"""


@click.command(epilog=_EXAMPLES)
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD ...]", shell_complete=stored_workloads)
@click.option(
    "--by",
    default="platform",
    show_default=True,
    metavar="FACET",
    callback=check_facet,
    shell_complete=facets,
    help="Facet that separates points, such as platform or label:KEY.",
)
@click.option("--platform", type=NAME, metavar="NAME", help="Only runs on this platform.")
@click.option("--experiment", type=NAME, metavar="NAME", help="Only runs of this experiment.")
@answer_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    **asked: Any,
) -> int:
    """Compare runs with the limits of their device.

    A point is a group of runs that differ only in their repeat: FLOP per byte of memory traffic, and FLOP per second.
    The roofs are those that `ceilings` measured on the same device, and those of its maker. The exit code is 1 if a
    point is above the device's limit, so that a measurement must be wrong.
    """
    from gpuagent_collector.answers.roofline import render
    from gpuagent_collector.answers.roofline_study import find_errors, study_roofline

    with reader.open() as opened:
        study = study_roofline(asking(opened, show_sql=show_sql), **asked)
    print_answer(render(study), output_format)
    return 1 if find_errors(study) else 0
