"""`collector plan`: calculate the repeats of a new experiment."""

import math
from typing import Any

import click

from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import delta_option, run_options, tested_options
from gpuagent_collector.output.formats import OutputFormat
from gpuagent_common.errors import MisuseError

_EXAMPLES = """\b
Examples:
  collector plan mnist
  collector plan resnet18 --metric step_seconds --effect 1 --effect 3
  collector plan mnist --experiment pilot --comparisons 6 --json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("workload", required=False, shell_complete=stored_workloads)
@run_options
@tested_options
@delta_option
@click.option(
    "--effect",
    "effect_percents",
    type=click.FloatRange(0, min_open=True),
    multiple=True,
    default=(1.0, 2.0, 5.0),
    metavar="PERCENT",
    help="A difference to detect; repeatable.  [default: 1, 2, 5]",
)
@click.option(
    "--comparisons",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Comparisons tested together in the new experiment: workloads × (sides − 1).",
)
@answer_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    delta: float,
    effect_percents: tuple[float, ...],
    **asked: Any,
) -> None:
    """Calculate the repeats that a new experiment needs.

    The calculation is based on the spread of existing runs of WORKLOAD, or of all. Its numbers are for a new
    experiment, not for more runs of an old one: runs added until a difference shows find differences that do not exist.
    """
    from gpuagent_collector.sample_size.export import render
    from gpuagent_collector.sample_size.study import Question, plan_repeats

    if not all(map(math.isfinite, effect_percents)):
        raise MisuseError("--effect must be a number")
    effects = [percent / 100 for percent in effect_percents]
    with reader.open() as opened:
        question = Question(effects=effects, delta=delta, **asked)
        print_answer(render(plan_repeats(asking(opened, show_sql=show_sql), question)), output_format)
