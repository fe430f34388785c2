"""`collector recommend`."""

import math
from typing import Any

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, format_options, prices_option, reader_options, show_sql_option
from gpuagent_collector.cli.selection import delta_option, run_options
from gpuagent_collector.output.formats import OutputFormat

_EXAMPLES = """\b
Examples:
  collector recommend mnist
  collector recommend resnet50 --by device --weigh cost
  collector recommend gpt --weigh time=1,cost=2 --prices prices.yaml --json
"""


def _weights(_context: click.Context, _option: click.Parameter, text: str) -> dict[str, float]:
    """Return the weight of each criterion in `time=1,cost=2`; one without a number counts once."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (each.strip() for each in part.partition("="))
        if name not in ("time", "energy", "cost"):
            raise click.BadParameter(f"{name or 'nothing'} cannot be weighed; there are time, energy and cost")
        if name in weights:
            raise click.BadParameter(f"{name} is weighed twice")
        weights[name] = _weight(number) if equals else 1.0
    return weights


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        raise click.BadParameter(f"a weight is a number above 0, not {text or 'nothing'}")
    return weight


@click.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("workload", shell_complete=stored_workloads)
@click.option(
    "--by",
    default="platform",
    show_default=True,
    metavar="FACET",
    help="What there is to choose from: platform, environment, limits, device, node, parameter:KEY or label:KEY; "
    "of several, comma-separated, their combinations.",
)
@click.option(
    "--weigh",
    "weights",
    default="time",
    show_default=True,
    callback=_weights,
    metavar="NAME[=WEIGHT],...",
    help="What counts: time, energy (of the GPUs), cost.",
)
@run_options
@delta_option
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
    """Say on which platform, GPU or environment WORKLOAD should run, and what bounds it there.

    Sides are ranked by what an item takes; those that the runs do not tell apart share a place. Reasons are those that
    were measured; the others are not shown.
    """
    from gpuagent_collector.output.rendering import print_answer
    from gpuagent_collector.recommend.export import render
    from gpuagent_collector.recommend.study import Request, recommend

    with reader.open() as opened:
        print_answer(render(recommend(asking(opened, show_sql=show_sql), Request(**asked))), output_format)
