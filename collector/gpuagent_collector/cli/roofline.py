"""`collector roofline`."""

from typing import Any

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, format_options, reader_options, show_sql_option
from gpuagent_collector.output.formats import OutputFormat

_EXAMPLES = """\b
Examples:
  collector roofline
  collector roofline resnet18 gpt --platform gke-l4
  collector roofline mnist --by label:driver --format csv > roofline.csv
"""


@click.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD ...]", shell_complete=stored_workloads)
@click.option(
    "--by",
    default="platform",
    show_default=True,
    metavar="FACET",
    help="Tell points apart by this, too: platform, environment, interference, limits, device, node, nodes, "
    "parameter:KEY or "
    "label:KEY.",
)
@click.option("--platform", metavar="NAME", help="Only runs on this platform.")
@click.option("--experiment", metavar="NAME", help="Only runs of this experiment.")
@show_sql_option
@format_options
@reader_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    **asked: Any,
) -> int:
    """Show what runs of each WORKLOAD, or of all, reach of what their device can do.

    Each point is the runs that agree in all but repeat: FLOPs by byte of memory traffic, and FLOPs by second. The roofs
    are what `ceilings` measured on the same device, and what its maker states. Exit code 1: FLOPs were executed faster
    than the device can, so that something was measured wrongly.
    """
    from gpuagent_collector.output.rendering import print_answer
    from gpuagent_collector.roofline.caveats import find_errors
    from gpuagent_collector.roofline.export import render
    from gpuagent_collector.roofline.study import study_roofline

    with reader.open() as opened:
        study = study_roofline(asking(opened, show_sql=show_sql), **asked)
    print_answer(render(study), output_format)
    return 1 if find_errors(study) else 0
