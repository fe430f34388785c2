"""Options that choose runs and what is tested of them, the same for all commands that compare."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from gpuagent_collector.cli.completing import facets
from gpuagent_collector.metrics import Stat

Command = TypeVar("Command", bound=Callable[..., Any])


def side_options(command: Command) -> Command:
    """Add VALUES, --by and --baseline; the command gets them as `compare.comparison.Request` takes them."""
    return _with(command, _SIDES)


def run_options(command: Command) -> Command:
    """Add --experiment and --where; the command gets them as texts or None."""
    return _with(command, _RUNS)


def tested_options(command: Command) -> Command:
    """Add --metric and --stat; the command gets `metric: str | None` and `stat: Stat | None`."""
    return _with(command, _TESTED)


def delta_option(command: Command) -> Command:
    """Add --delta; the command gets `delta: float`, a share."""
    return _with(command, [_DELTA])


def _with(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    for option in reversed(options):
        option(command)
    return command


def _joined(_context: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> str:
    return ",".join(names)


def _stat(_context: click.Context, _option: click.Parameter, name: str | None) -> Stat | None:
    return None if name is None else Stat(name)


def _share(_context: click.Context, _option: click.Parameter, percent: float) -> float:
    if math.isnan(percent):
        raise click.BadParameter("must be a number")
    return percent / 100


_SIDES = (
    click.argument("values", nargs=-1, metavar="[SIDE_A SIDE_B ...]"),
    click.option(
        "--by",
        multiple=True,
        default=("platform",),
        callback=_joined,
        metavar="FACET",
        shell_complete=facets,
        help="What tells the sides apart: platform, environment, interference, limits, device, node, nodes, "
        "parameter:KEY or "
        "label:KEY; of several, their combinations.  [default: platform]",
    ),
    click.option("--baseline", metavar="SIDE", help="Compare with this one.  [default: the first]"),
)
_RUNS = (
    click.option("--experiment", metavar="NAME", help="Only runs of this experiment."),
    click.option("--where", metavar="SQL", help="Only runs of which this is true; a condition on the view `runs`."),
)
_TESTED = (
    click.option("--metric", metavar="METRIC", help="The one metric to test.  [default: throughput]"),
    click.option(
        "--stat",
        type=click.Choice([stat.value for stat in Stat]),
        callback=_stat,
        help="What to take of each run's samples over its measured phase: of utilisation, memory, power, steps. Over "
        "runs it is always the median.  [default: what suits each, as the peak of memory]",
    ),
)
_DELTA = click.option(
    "--delta",
    type=click.FloatRange(0, 100, min_open=True),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    callback=_share,
    help="What counts as equal.",
)
