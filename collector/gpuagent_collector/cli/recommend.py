"""`collector recommend`: recommend where a workload should run."""

import math
from typing import Any

import click

from gpuagent_collector.cli.completing import facets, stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options, prices_option
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import check_facet, delta_option, run_options
from gpuagent_collector.present.formats import OutputFormat

_EXAMPLES = """\b
Examples:
  collector recommend mnist
  collector recommend resnet50 --by device --weigh cost
  collector recommend gpt --weigh time=1,cost=2 --prices prices.yaml --json
"""


def _weights(_context: click.Context, _option: click.Parameter, text: str) -> dict[str, float]:
    """Return the weights in `time=1,cost=2`; a criterion without a number has the weight 1."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (each.strip() for each in part.partition("="))
        if name not in ("time", "energy", "cost"):
            raise click.BadParameter(f"{name!r} is no criterion; use time, energy or cost")
        if name in weights:
            raise click.BadParameter(f"{name} is given twice")
        try:
            weights[name] = float(number) if equals else 1.0
        except ValueError:
            weights[name] = math.nan
        if not (math.isfinite(weights[name]) and weights[name] > 0):
            raise click.BadParameter(f"a weight must be a number above 0, not {number!r}")
    return weights


@click.command(epilog=_EXAMPLES)
@click.argument("workload", shell_complete=stored_workloads)
@click.option(
    "--by",
    default="platform",
    show_default=True,
    metavar="FACET",
    callback=check_facet,
    shell_complete=facets,
    help="Facets to choose between, such as device; comma-separated for combinations.",
)
@click.option(
    "--weigh",
    "weights",
    default="time",
    show_default=True,
    callback=_weights,
    metavar="NAME[=WEIGHT],...",
    help="Criteria: time, energy (of the GPUs), cost.",
)
@run_options
@delta_option
@prices_option
@answer_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    **asked: Any,
) -> None:
    """Recommend where a workload should run.

    Ranks platforms, GPUs or environments by time, energy or cost per item, and shows what limits WORKLOAD on each.
    Sides that the runs cannot distinguish share a place; of one side alone the values are printed. Only measured
    reasons are shown. FACET is one of those of `collector compare --help`, such as device or command.
    """
    from gpuagent_collector.compare import comparison
    from gpuagent_collector.compare import export as comparing
    from gpuagent_collector.errors import OneSideError
    from gpuagent_collector.recommend.export import render
    from gpuagent_collector.recommend.study import Request, recommend

    with reader.open() as opened:
        ask = asking(opened, show_sql=show_sql)
        try:
            rendering = render(recommend(ask, Request(**asked)))
        except OneSideError:
            described = {name: asked[name] for name in ("by", "workload", "experiment", "where", "prices")}
            rendering = comparing.render(comparison.compare(ask, comparison.Request(**described, series=False)))
        print_answer(rendering, output_format)
