"""`collector plan`: calculate the repeats of a new experiment."""

from pathlib import Path
from typing import Any

import click

from gpuagent_collector.cli.completing import facets, stored_workloads
from gpuagent_collector.cli.keeper import output_path
from gpuagent_collector.cli.options import ReaderOptions, answer_options
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import check_facet, delta_option, run_options, tested_options
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import MOST, Number
from gpuagent_common.errors import MisuseError

_EXAMPLES = """\b
Examples:
  collector plan mnist
  collector plan resnet18 --metric step_seconds --effect 1 --effect 3
  collector plan mnist --experiment pilot --comparisons 6 --json
  collector plan mnist --why bare docker --by environment -o why.yaml
"""


@click.command(epilog=_EXAMPLES)
@click.argument("workload", required=False, shell_complete=stored_workloads)
@run_options
@tested_options
@delta_option
@click.option(
    "--effect",
    "effect_percents",
    type=Number(0, MOST, min_open=True),
    multiple=True,
    default=(1.0, 2.0, 5.0),
    metavar="PERCENT",
    help="A difference to detect; repeatable.  [default: 1, 2, 5]",
)
@click.option(
    "--comparisons",
    type=click.IntRange(1, MOST),
    default=1,
    show_default=True,
    help="Comparisons tested together in the new experiment: workloads × (sides − 1).",
)
@click.option("--why", nargs=2, metavar="A B", help="Separate the facts in which two sides differ.")
@click.option(
    "--by",
    multiple=True,
    callback=lambda context, option, names: check_facet(context, option, names) if names else None,
    metavar="FACET",
    shell_complete=facets,
    help="With --why: facet that separates the sides.  [default: platform]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --why: experiment file to write.",
)
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@answer_options
def command(
    reader: ReaderOptions,
    output_format: OutputFormat,
    show_sql: bool,
    delta: float,
    effect_percents: tuple[float, ...],
    why: tuple[str, str] | None,
    by: str | None,
    output: Path | None,
    force: bool,
    **asked: Any,
) -> None:
    """Calculate the repeats that a new experiment needs.

    The calculation is based on the spread of existing runs of WORKLOAD, or of all. Its numbers are for a new
    experiment, not for more runs of an old one: runs added until a difference shows find differences that do not exist.

    With --why, plans an experiment from side A to side B that changes one fact after the other, such as CPU limit,
    container or network. After it has run, --experiment NAME divides the ratio among the facts.
    """
    if why:
        comparisons, asked["values"] = asked.pop("comparisons"), why
        if comparisons != 1:
            raise MisuseError("--comparisons does not go with --why")
        path = output and output_path(output, force=force)
        _explain(reader, output_format, path, show_sql=show_sql, by=by or "platform", delta=delta, **asked)
        return
    if by or output:
        raise MisuseError("--by and -o need --why A B")
    from gpuagent_collector.answers.plan import Question, plan_repeats, render

    effects = [percent / 100 for percent in effect_percents]
    with reader.open() as opened:
        question = Question(effects=effects, delta=delta, **asked)
        print_answer(render(plan_repeats(asking(opened, show_sql=show_sql), question)), output_format)


def _explain(
    reader: ReaderOptions, output_format: OutputFormat, output: Path | None, *, show_sql: bool, **asked: Any
) -> None:
    """Print the ladder of two sides, or the ratio divided among the rungs of an experiment that has them."""
    from gpuagent_collector.answers.why import (
        divide_ratio,
        has_ladder,
        plan_ladder,
        render_division,
        render_ladder,
        write_experiment,
    )
    from gpuagent_collector.compare.comparison import Request
    from gpuagent_collector.present.files import appearing

    with reader.open() as opened:
        ask = asking(opened, show_sql=show_sql)
        experiment = asked["experiment"]
        if experiment and has_ladder(ask, experiment):
            rendering = render_division(divide_ratio(ask, Request(**asked), experiment))
        else:
            ladder = plan_ladder(ask, Request(**asked))
            if output:
                with appearing(output) as unfinished:
                    unfinished.write_text(write_experiment(ladder), encoding="utf-8")
            rendering = render_ladder(ladder, str(output) if output else None)
        print_answer(rendering, output_format)
