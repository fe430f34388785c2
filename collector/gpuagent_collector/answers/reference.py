"""`collector peers --reference`: the figures of runs beside those of published runs on the same model of GPU."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median
from typing import Any

from gpuagent_collector.metrics import BY_NAME, ITEMS, Metric
from gpuagent_collector.present.answer import Answer, Legend, in_short
from gpuagent_collector.present.human import Notation, in_unit, notation, significant
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import first_few
from gpuagent_collector.runs.data import Run, load_facts
from gpuagent_collector.runs.words import spoken, write_command

# The first column of runs.csv that is a figure; the names of the others are those of metrics.
_THROUGHPUT = "throughput_items_per_second"
_SPOKEN_RUNS = 3
_LEGEND = (
    "Reference: the median of published runs of the same workload, parameters and GPU model, seven a machine, on one "
    "machine or two. from, to: their lowest and highest; of seven runs, another one there is outside by chance once in "
    "four times."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a run, and `values` of the reference runs of the same workload, parameters and device."""

    run: Run
    metric: Metric
    unit: str
    value: float
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the reference runs."""
        return median(self.values)

    @property
    def percent(self) -> float | None:
        """The figure as a share of that median; None: the median is 0, or a temperature, which has no share."""
        return 100 * self.value / self.median if self.median and self.unit != "celsius" else None

    @property
    def place(self) -> str:
        """The place of the figure: below, within or above the reference runs."""
        if self.value < min(self.values):
            return "below"
        return "above" if self.value > max(self.values) else "within"


@cache
def load_reference() -> tuple[Mapping[str, str], ...]:
    """Return the reference runs as docs/reference describes them; an absent figure is ''."""
    with (files("gpuagent_collector") / "reference" / "runs.csv").open(encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def write_parameters(parameters: Mapping[str, Any]) -> str:
    """Return parameters as the reference has them: KEY=VALUE in the order of keys, without those that have no value."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in parameters.items()}
    return " ".join(f"{key}={texts[key]}" for key in sorted(texts) if parameters[key] is not None)


def published_on(run: Run) -> list[Mapping[str, str]]:
    """Return the reference runs of a built-in workload on the run's device, with whatever parameters."""
    rows = load_reference() if not run.command else ()
    return [row for row in rows if (row["workload"], row["device"]) == (run.workload, run.device)]


def _say_place(figure: Figure) -> str:
    scale = notation([figure.value, figure.median], figure.unit)
    share = "" if figure.percent is None else f"at {significant(figure.percent, 3)} % of the reference "
    run, title = figure.run, spoken(figure.metric, None)
    return (
        f"{run.run_id} on {run.device} is {share}for {run.workload}: {title} "
        f"{scale.write(figure.value)}, {figure.place} {len(figure.values)} runs with a median of "
        f"{scale.write(figure.median)} ({_write_spread(figure, scale)})."
    )


def _write_spread(figure: Figure, scale: Notation) -> str:
    return f"{scale.write_bare(min(figure.values))} to {scale.write_bare(max(figure.values))}"


def _say_absent(run: Run) -> str:
    """Return in one sentence that a run has no reference, and the parameters in which the nearest ones differ."""
    own = set(write_parameters(json.loads(run.parameters)).split())
    differing = sorted((set(row["parameters"].split()) - own for row in published_on(run)), key=len)
    nearest = f"; the nearest has {' '.join(sorted(differing[0])) or 'fewer of them'}" if differing else ""
    where = f"on {run.device}" if run.device else "without a GPU"
    return f"{run.run_id} has no reference: {run.workload} with its parameters {where}{nearest}."


def _say_absent_of(runs: Sequence[Run]) -> str:
    """Return in words that runs have no reference, and what the reference has of their workloads."""
    workloads = {run.workload for run in runs if not run.command}
    devices = sorted({row["device"] for row in load_reference() if row["workload"] in workloads})
    known = "no run of these workloads"
    if devices and {run.device for run in runs} <= {*devices}:
        known = "no run with these parameters"
    elif devices:
        known = f"only runs on {' and '.join(devices)}"
    return f"No published run is like {first_few([run.run_id for run in runs])}: the reference has {known}."


def answer_reference(ask: Ask, runs: Sequence[Run]) -> Answer:
    """Return the figures of a run, or the first one of each of several runs, beside those of the reference."""
    # The figures of those runs that have a reference, in the order of the reference's columns.
    facts = load_facts(ask, [run.run_id for run in runs])
    figures = []
    for run in runs:
        parameters = write_parameters(json.loads(run.parameters))
        rows = [row for row in published_on(run) if row["parameters"] == parameters and row["run_id"] != run.run_id]
        columns = list(rows[0]) if rows else [_THROUGHPUT]
        for column in columns[columns.index(_THROUGHPUT) :]:
            metric = BY_NAME["throughput" if column == _THROUGHPUT else column]
            value = facts.value(run, metric.name)
            values = tuple(float(row[column]) for row in rows if row[column])
            if value is not None and values:
                unit = facts.unit([run], metric) if metric.unit == ITEMS else metric.unit
                figures.append(Figure(run=run, metric=metric, unit=unit, value=value, values=values))
    first = list({figure.run.run_id: figure for figure in reversed(figures)}.values())[::-1]
    known = {figure.run.run_id for figure in figures}
    first.sort(key=lambda figure: figure.percent or 0)
    absent = [run for run in runs if run.run_id not in known]
    said = in_short([*map(_say_place, first)], most=_SPOKEN_RUNS)
    said += map(_say_absent, absent) if len(runs) == 1 else []
    said += [_say_absent_of(absent)] if absent and len(runs) > 1 else []
    table = _make_table(figures if len(runs) == 1 else first, several=len(runs) > 1)
    return Answer(
        heading="Beside the reference runs",
        text=" ".join(said),
        parts=[table, Legend("", _LEGEND)] if figures else [],
        # The run that is the furthest below.
        next=write_command("show", {}, first[0].run.run_id) if first else None,
        more="every figure, and how to read this" if figures else "",
        facts={"figures": table, "without_reference": [run.run_id for run in absent]},
        csv=[table],
    )


def _make_table(figures: Sequence[Figure], *, several: bool) -> Table:
    def name(figure: Figure) -> str:
        return figure.run.run_id if several else figure.metric.title

    columns = [
        Column(None, "", name, left=True),
        *(Column(key, value=f"run.{key}") for key in ("run_id", "workload", "device")),
        Column("figure", value="metric.name"),
        Column("unit"),
        Column("value"),
        Column(None, "this run", lambda figure: in_unit(figure.unit)(figure.value)),
        Column("reference_runs", value=lambda figure: len(figure.values)),
        Column("reference_median", value="median"),
        Column("reference_lowest", value=lambda figure: min(figure.values)),
        Column("reference_highest", value=lambda figure: max(figure.values)),
        Column(None, "reference", lambda figure: in_unit(figure.unit)(figure.median)),
        Column(None, "from, to", lambda figure: _write_spread(figure, notation([figure.median], figure.unit))),
        Column("percent", "of it", show=lambda share: f"{significant(share, 3)} %"),
        Column("place", "place"),
    ]
    return Table(columns, figures, most=MOST_ROWS)
