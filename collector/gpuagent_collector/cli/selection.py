"""Groups of options for commands that answer, and how what they give becomes what functions take."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuagent_collector.choices import PartKind, Stat
from gpuagent_collector.cli.options import PRICES_OPTION, ReaderOptions, facets, stored_workloads
from gpuagent_common.cli import MOST_SECONDS, NAME, Number
from gpuagent_common.errors import MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.query.reader import StreamingReader

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")

Decorator = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Options:
    """Options that belong together; `change` makes what a function takes from what they give."""

    decorators: Sequence[Decorator]
    change: Callable[[dict[str, Any]], None] | None = None


def _join_conditions(given: dict[str, Any]) -> None:
    where, parameters = given["where"], given.pop("parameters")
    if parameters:
        from gpuagent_collector.query.condition import parenthesised
        from gpuagent_collector.runs.words import Condition

        conditions = _conditions(parameters)
        words = [word for text in parameters for word in ("--param", text)]
        if where:
            # The end of its line closes a comment of the user's.
            conditions.append(parenthesised(where))
            words += ["--where", where]
        given["where"] = Condition(" AND ".join(conditions), words)


def _gather_limits(given: dict[str, Any]) -> None:
    limits = {kind: given.pop(kind) for kind in ("ttft", "tpot", "e2e")}
    given["milliseconds"] = {kind: most for kind, most in limits.items() if most is not None}


def _gather_stats(given: dict[str, Any]) -> None:
    wanted = ((Stat.MEAN, given.pop("mean")), (Stat.MAX, given.pop("highest")))
    given["stats"] = tuple(stat for stat, is_wanted in wanted if is_wanted)


def _read_prices(given: dict[str, Any]) -> None:
    from gpuagent_collector.prices.price import find_prices

    given["prices"] = find_prices(given["prices"])


def _conditions(parameters: Sequence[str]) -> list[str]:
    """Return the SQL conditions of KEY=VALUE texts; the same key twice stands for both values."""
    from gpuagent_collector.query.ask import literal
    from gpuagent_collector.runs.facets import find_facet

    values: dict[str, list[str]] = {}
    for text in parameters:
        key, equals, value = text.partition("=")
        if not equals:
            raise MisuseError(f"--param {text} is not KEY=VALUE, such as batch-size=64")
        column = find_facet(f"parameter:{key}").expression.replace("run.parameters", "parameters", 1)
        # As JSON has it, not as Python prints it.
        values.setdefault(column, []).append(value.lower() if value in ("True", "False") else value)
    conditions = []
    for column, accepted in values.items():
        ways = [f"{column} IN ({', '.join(map(literal, accepted))})"]
        # 4 finds 4.0 too, which the progress of runs shows as 4.
        if numbers := [value for value in accepted if _NUMBER.fullmatch(value)]:
            ways.append(f"try_cast({column} AS DOUBLE) IN ({', '.join(numbers)})")
        conditions.append(f"({' OR '.join(ways)})")
    return conditions


def check_facet(_context: click.Context, _option: click.Parameter, names: str | tuple[str, ...] | None) -> str | None:
    """Return the facets of --by, comma-separated. Raises MisuseError: one does not exist."""
    if names is None:
        return None
    from gpuagent_collector.runs.facets import find_facet

    joined = names if isinstance(names, str) else ",".join(names)
    find_facet(joined)
    return joined


def _metric(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name is not None and not is_metric(name):
        from gpuagent_collector.metrics import BY_NAME, hint_at
        from gpuagent_collector.prices.price import KINDS

        # The currency ends the name of a cost.
        costs = [f"{kind.stem}_usd" for kind in KINDS]
        raise MisuseError(f"--metric {name} is unknown; {hint_at(name, [*BY_NAME, *costs])}")
    return name


def is_metric(name: str) -> bool:
    """Return whether a metric has this name, also one that needs prices."""
    from gpuagent_collector.metrics import BY_NAME
    from gpuagent_collector.prices.price import KINDS, PHYSICAL

    # A colon precedes a statistic: gpu_power_watts:max.
    is_price = name in {metric.name for metric in PHYSICAL} or name.startswith(tuple(f"{each.stem}_" for each in KINDS))
    return is_price or name.partition(":")[0] in BY_NAME


def draw_instead(what: str, metric: str) -> tuple[str, str]:
    """Return what `plot` draws where --metric, which it does not take, is given for a figure, and why."""
    if is_metric(metric) and not (what == "because" and metric.startswith("cost_per_")):
        return metric, f"plot takes no --metric, but the metric in place of {what}"
    parts = "; because draws the parts of a cost with --prices" if is_metric(metric) else ""
    return what, f"plot takes no --metric{parts}"


def ask_sides_of_files(reader: ReaderOptions, opened: "StreamingReader", asked: dict[str, Any]) -> None:
    """Make the sides of what is asked those of several files, unless it names sides or says by what they differ."""
    source = click.get_current_context().get_parameter_source("by")
    if not reader.files or asked.get("values") or source is ParameterSource.COMMANDLINE:
        return
    from gpuagent_collector.exchange.merge import JoinedReader
    from gpuagent_collector.runs.words import UsualSides

    assert isinstance(opened, JoinedReader)  # noqa: S101 - so a reader of files is
    is_usual = asked.get("by") == "platform" or ("values" in asked and asked.get("by", "") is None)
    if is_usual or asked.get("why"):
        asked["by"] = opened.by
        if "values" in asked and not asked.get("event"):
            asked["values"] = UsualSides(opened.sides)


EXPERIMENT = click.option("--experiment", type=NAME, metavar="NAME", help="Only runs of this experiment.")
SIDES = Options(
    (
        click.argument("values", nargs=-1, metavar="[SIDE_A SIDE_B ...]"),
        click.option(
            "--by",
            multiple=True,
            default=("platform",),
            callback=check_facet,
            metavar="FACET",
            shell_complete=facets,
            help="Facet that separates the sides; comma-separated for combinations.  [default: platform]",
        ),
        click.option("--baseline", metavar="SIDE", help="The side to compare with.  [default: the first]"),
    )
)
RUNS = Options(
    (
        EXPERIMENT,
        click.option("--where", metavar="SQL", help="Only runs that meet this condition on the view `runs`."),
        click.option(
            "--param",
            "parameters",
            multiple=True,
            metavar="KEY=VALUE",
            help="Only runs with this value of a parameter; repeatable.",
        ),
    ),
    _join_conditions,
)
JOBS = click.option("--jobs", is_flag=True, help="Take jobs that ended instead of runs.")
TESTED = Options(
    (
        click.option("--metric", metavar="METRIC", callback=_metric, help="The metric to test.  [default: throughput]"),
        click.option(
            "--stat",
            type=click.Choice([stat.value for stat in Stat]),
            callback=lambda _context, _option, name: None if name is None else Stat(name),
            help="Statistic of each run's samples in its measured phase.  "
            "[default: one per metric, such as peak memory]",
        ),
    )
)
UNPAIRED = click.option("--unpaired", is_flag=True, help="Test an experiment's runs as if made independently.")
_MILLISECONDS = Number(0, 1000 * MOST_SECONDS, min_open=True)
LIMITS = Options(
    (
        click.option("--ttft", metavar="MS", type=_MILLISECONDS, help="Most milliseconds to the first token."),
        click.option("--tpot", metavar="MS", type=_MILLISECONDS, help="Most milliseconds for each further token."),
        click.option("--e2e", metavar="MS", type=_MILLISECONDS, help="Most milliseconds for a whole answer."),
        click.option(
            "--at",
            "percent",
            type=click.Choice(["50", "90", "99"]),
            callback=lambda _context, _option, text: None if text is None else int(text),
            help="Percentage of requests that keep the limits.  [default: 90]",
        ),
    ),
    _gather_limits,
)
EACH = click.option(
    "--each",
    type=click.Choice([kind.value for kind in PartKind]),
    callback=lambda _context, _option, name: None if name is None else PartKind(name),
    help="Show the figures of each GPU, rank or node too.",
)
DELTA = click.option(
    "--delta",
    type=Number(0, 100, min_open=True),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    callback=lambda _context, _option, percent: percent / 100,
    help="Largest difference that counts as equal.",
)
WORKLOAD = click.option(
    "--workload", type=NAME, metavar="WORKLOAD", help="Only runs of this workload.", shell_complete=stored_workloads
)
PLATFORM = click.option("--platform", type=NAME, metavar="NAME", help="Only runs on this platform.")
STATS = Options(
    (
        click.option("--mean", is_flag=True, help="Show the mean of each run's samples too."),
        click.option("--max", "highest", is_flag=True, help="Show the highest sample of each run too."),
    ),
    _gather_stats,
)
PRICES = Options((PRICES_OPTION,), _read_prices)
