"""Curves of scaling: runs that differ in their ranks alone, grouped, with their figures and their baseline."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from math import inf
from statistics import median
from typing import Any

from gpuagent_collector.choices import PartKind
from gpuagent_collector.metrics import BY_NAME, Metric
from gpuagent_collector.prices.price import ITEMS_PER_MONEY, Prices
from gpuagent_collector.prices.runs import with_costs
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import USUAL_REPEATS, differing_arguments, find_argument
from gpuagent_collector.runs.cells import CANCELLED, Cell, match_runs
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import find_runs, only_with
from gpuagent_collector.runs.like import LikeKey, like_key
from gpuagent_collector.runs.parts import load_parts
from gpuagent_collector.runs.repeating import find_recorded
from gpuagent_collector.runs.stragglers import describe_straggler
from gpuagent_collector.runs.words import distinguishing, reasons
from gpuagent_collector.statistics.shift import Shift, Sides, least_pairs
from gpuagent_collector.statistics.summaries import median_interval
from gpuagent_collector.statistics.verdicts import Verdict, judge
from gpuagent_common.errors import GpuAgentError


class Held(Enum):
    """The amount that stays the same while the number of ranks grows."""

    # Weak scaling: more ranks take more samples a step.
    RANK_BATCH = "batch_per_rank"
    # As a rate this is weak scaling too; the whole run has fewer steps on more ranks.
    TOTAL_SAMPLES = "batch_per_rank_and_total_samples"
    # Strong scaling: each of more ranks takes fewer samples a step.
    GLOBAL_BATCH = "global_batch"
    # The workload reports no batch size.
    UNKNOWN = "unknown"


class By(Enum):
    """The number that grows from one point of a curve to the next."""

    # On however many nodes.
    RANKS = "ranks"
    # With the same number of ranks on each.
    NODES = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(LikeKey):
    """The settings in which all runs of a curve agree.

    Attributes:
        parameters: canonical JSON of the workload's parameters, except those in `amounts`.
        amounts: the sizes that are held while the ranks grow, by name.
        arguments: of a program of the user's own, those in which runs of one number of ranks differ.
    """

    held: Held
    amounts: tuple[tuple[str, int], ...]
    arguments: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRun:
    """A run, with the figures that its scaling needs.

    Attributes:
        ranks: number of its processes, at least 1.
        gpus: models of its GPUs, each named once; None: no known GPU.
        nodes: names of its nodes.
        metrics: its figures, by metric.
        parameters: its parameters, names with dashes; those that are not set are left out.
        is_short: whether it reported that it measured for too short a time.
        arguments: those of its command in which runs with as many ranks differ, which the ranks cannot explain.
    """

    run: Run
    ranks: int
    gpus: str | None
    nodes: frozenset[str]
    metrics: Mapping[str, float]
    parameters: Mapping[str, Any]
    is_short: bool
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def counts(self) -> bool:
        """Return whether it succeeded and has a finite throughput above 0."""
        return self.run.status == "succeeded" and 0 < self.metrics.get("throughput", 0) < inf

    @property
    def standing(self) -> str:
        """The status of the run, or what a succeeded one lacks."""
        return "without throughput" if self.run.status == "succeeded" else (self.run.status or "unknown")

    @property
    def place(self) -> tuple[int, int]:
        """The numbers of its ranks and of their nodes."""
        return self.ranks, self.run.node_count

    def settings(self, by: By) -> Iterator[Settings]:
        """Yield the settings of each curve in which the run may be a point."""
        batch, steps = whole(self.parameters.get("batch-size")), whole(self.parameters.get("steps"))
        spread = {"ranks per node": self.ranks // self.run.node_count} if by is By.NODES else {}
        stepwise = {**spread, "steps": steps} if steps else spread
        if batch is None:
            yield self._settings(Held.UNKNOWN, stepwise)
            return
        yield self._settings(Held.RANK_BATCH, {"batch per rank": batch, **stepwise})
        yield self._settings(Held.GLOBAL_BATCH, {"global batch": batch * self.ranks, **stepwise})
        if steps:
            total = batch * steps * self.ranks
            yield self._settings(Held.TOTAL_SAMPLES, {**spread, "batch per rank": batch, "total samples": total})

    def _settings(self, held: Held, amounts: Mapping[str, int]) -> Settings:
        others = {name: value for name, value in self.parameters.items() if name not in _APART}
        key = replace(like_key(self.run, *_GROWING), parameters=json.dumps(others, sort_keys=True))
        return Settings(**key.facets, held=held, amounts=tuple(amounts.items()), arguments=self.arguments)


def make_trials(runs: Iterable[Run], facts: Facts) -> list[RankedRun]:
    """Return the runs whose number of ranks is known: as reported, or else as requested."""
    trials = []
    for run in runs:
        parameters, metrics = _read_parameters(run.parameters), facts.metrics.get(run.run_id, {})
        asked = whole(parameters.get("ranks"))
        ranks = whole(metrics.get("ranks")) or (asked * run.node_count if asked else None)
        if ranks is not None:
            models = {device["name"] or "unknown GPU" for device in facts.devices.get(run.run_id, [])}
            nodes = {session["hostname"] or "unknown node" for session in facts.sessions.get(run.run_id, [])}
            trial = RankedRun(
                run=run,
                ranks=ranks,
                gpus=", ".join(sorted(models)) or None,
                nodes=frozenset(nodes),
                metrics=metrics,
                parameters=parameters,
                is_short=run.run_id in facts.short,
            )
            trials.append(trial)
    return _with_arguments(trials)


def _with_arguments(trials: Sequence[RankedRun]) -> list[RankedRun]:
    """Return the runs with those arguments in which commands with as many ranks differ."""
    groups: dict[tuple[str, tuple[int, int]], list[RankedRun]] = defaultdict(list)
    for trial in trials:
        groups[trial.run.workload, trial.place].append(trial)
    differing: dict[str, set[str]] = defaultdict(set)
    for (workload, _), members in groups.items():
        commands = [trial.run.command for trial in members]
        differing[workload].update(name for name, _ in differing_arguments([commands]) if name)
    found = []
    for trial in trials:
        names = sorted(differing[trial.run.workload])
        found.append(replace(trial, arguments=tuple((name, find_argument(trial.run.command, name)) for name in names)))
    return found


def whole(value: object) -> int | None:
    """Return a whole number from 1 up; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 and value == value // 1:
        return int(value)
    return None


# The number of ranks is an argument of a program of the user's own, and they are on more GPUs and nodes.
_GROWING = ("identity", "device", "node_count")

# Traces and counters are taken after the measured phase, so they do not change a point.
_APART = frozenset({"ranks", "nodes", "batch-size", "steps", "elastic", "trace", "profile", "counters"})


@lru_cache(maxsize=4096)  # thousands of runs have the same
def _read_parameters(text: str) -> Mapping[str, Any]:
    values = json.loads(text).items()
    return {name.replace("_", "-"): value for name, value in values if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The runs of a curve that had the same number of ranks on the same number of nodes.

    Attributes:
        trials: those that succeeded and have a throughput; may be empty.
        others: those that ended otherwise, have not ended, or have no throughput.
    """

    ranks: int
    nodes: int
    trials: tuple[RankedRun, ...]
    others: tuple[RankedRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Runs that differ only in their ranks, and in consequences of these.

    Attributes:
        gpus: models of the GPUs that they used; None: unknown.
        rows: by ascending ranks, then nodes; at least two have trials.
    """

    settings: Settings
    gpus: str | None
    rows: tuple[Row, ...]

    @property
    def baseline(self) -> Row:
        """The row that the others are compared with: the fewest ranks with trials."""
        return next(row for row in self.rows if row.trials)


def find_curves(trials: Sequence[RankedRun], by: By = By.RANKS) -> tuple[Curve, ...]:
    """Return the curves of the trials, those of weak scaling first; a trial can be in one of each kind."""
    groups: dict[tuple[Settings, str | None], list[RankedRun]] = defaultdict(list)
    others: dict[Settings, list[RankedRun]] = defaultdict(list)
    for trial in trials:
        for settings in trial.settings(by):
            if trial.counts:
                groups[settings, trial.gpus].append(trial)
            else:
                others[settings].append(trial)
    found = [_curve(settings, gpus, members, others[settings]) for (settings, gpus), members in groups.items()]
    curves = [curve for curve in found if sum(1 for row in curve.rows if row.trials) >= 2]
    return tuple(sorted(curves, key=_order))


def _curve(settings: Settings, gpus: str | None, trials: Iterable[RankedRun], others: Iterable[RankedRun]) -> Curve:
    points = _by_place(trials)
    # A run that failed early has no GPU yet.
    fallen = _by_place(other for other in others if other.gpus in (gpus, None))
    rows = [
        Row(ranks=ranks, nodes=nodes, trials=tuple(points[ranks, nodes]), others=tuple(fallen[ranks, nodes]))
        for ranks, nodes in sorted(points | fallen)
    ]
    return Curve(settings=settings, gpus=gpus, rows=tuple(rows))


def _by_place(trials: Iterable[RankedRun]) -> dict[tuple[int, int], list[RankedRun]]:
    groups: dict[tuple[int, int], list[RankedRun]] = defaultdict(list)
    for trial in trials:
        groups[trial.place].append(trial)
    return groups


def _order(curve: Curve) -> tuple[object, ...]:
    settings = curve.settings
    runs = sum(len(row.trials) for row in curve.rows)
    place = (settings.platform or "", settings.environment or "", settings.image or "", curve.gpus or "")
    rest = (settings.interference or "", settings.limits or "", settings.parameters, settings.amounts)
    return (settings.workload, *place, list(Held).index(settings.held), -runs, *rest)


# The interval of a speed-up takes as many runs of each number of ranks.
_ENOUGH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure beside the throughput: `of` computes it from a run's metrics; None: one is absent."""

    name: str
    unit: str
    of: Callable[[Mapping[str, float]], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFigures:
    """The figures of one number of ranks.

    Attributes:
        throughput: median over the runs, items/s; None: no run succeeded.
        low, high: 95 % interval of that median; None: too few runs for one.
        speed_up: ratio of the throughput to the baseline's; None for the baseline itself and without runs.
        pairs: number of pairs by which it was tested; None: the runs are independent.
        verdict: what the speed-up's own interval shows; None where there is no speed-up.
        efficiency: the speed-up as a share of the ratio of ranks.
        measures: medians over those runs that have the measure, by name.
    """

    row: Row
    throughput: float | None
    low: float | None
    high: float | None
    speed_up: Shift | None
    pairs: int | None
    verdict: Verdict | None
    efficiency: Shift | None
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFigures:
    """A curve and the figures of each of its rows, in their order.

    Attributes:
        unit: of its throughput.
        straggler: the rank that is late with the most ranks, in words; '' where that is unknown.
        more_runs: the command that makes more runs of each number of ranks; None: a speed-up is shown by enough runs,
            or no command makes just these runs.
    """

    curve: Curve
    rows: tuple[RowFigures, ...]
    unit: str
    straggler: str
    more_runs: str | None


def _row(row: Row, baseline: Row, measures: Sequence[Measure]) -> RowFigures:
    values = _throughputs(row)
    low, high = median_interval(values) or (None, None)
    of_runs = {measure.name: [measure.of(trial.metrics) for trial in row.trials] for measure in measures}
    known = {name: [value for value in found if value is not None] for name, found in of_runs.items()}
    speed_up = efficiency = verdict = sides = None
    if values and row is not baseline:
        sides = _sides(baseline, row)
        (judgement,) = judge([sides])
        speed_up, verdict, factor = judgement.shift, judgement.verdict, baseline.ranks / row.ranks
        least, most = (None if end is None else end * factor for end in (speed_up.low, speed_up.high))
        efficiency = replace(speed_up, estimate=speed_up.estimate * factor, low=least, high=most)
    return RowFigures(
        row=row,
        throughput=median(values) if values else None,
        low=low,
        high=high,
        speed_up=speed_up,
        pairs=len(sides.baseline) if sides and sides.matched else None,
        verdict=verdict,
        efficiency=efficiency,
        measures={name: median(found) for name, found in known.items() if found},
    )


def _sides(baseline: Row, row: Row) -> Sides:
    """Return the throughputs of two rows: of pairs where an experiment made enough of them, as `compare` does."""
    both = baseline, row
    pairs = match_runs(*(Cell(side="", runs=tuple(trial.run for trial in each.trials), others={}) for each in both))
    if len(pairs) < least_pairs(1):
        return Sides(_throughputs(baseline), _throughputs(row))
    of_run = {trial.run.run_id: trial.metrics["throughput"] for each in both for trial in each.trials}
    before, after = zip(*((of_run[one.run_id], of_run[two.run_id]) for one, two in pairs), strict=True)
    return Sides(before, after, matched=True)


def _throughputs(row: Row) -> list[float]:
    return [trial.metrics["throughput"] for trial in row.trials]


def _metric(metric: Metric) -> Measure:
    return Measure(name=metric.name, unit=metric.unit, of=lambda metrics: metrics.get(metric.name))


def _per_joule(metrics: Mapping[str, float]) -> float | None:
    """Return the throughput by the mean power of the run's GPUs."""
    joules, seconds = metrics.get("gpu_energy_joules"), metrics.get("measure_seconds")
    return metrics["throughput"] * seconds / joules if joules and seconds else None


# Every measure that needs no prices.
MEASURES: tuple[Measure, ...] = (
    _metric(BY_NAME["step_seconds"]),
    _metric(BY_NAME["communication_percent"]),
    _metric(BY_NAME["exposed_communication_percent"]),
    _metric(BY_NAME["data_wait_percent"]),
    _metric(BY_NAME["items_per_gpu_second"]),
    Measure(name="items_per_gpu_joule", unit="items/J", of=_per_joule),
    _metric(BY_NAME["gpus"]),
)


# Way to grow → its name.
KINDS = {
    Held.RANK_BATCH: "weak scaling",
    Held.TOTAL_SAMPLES: "weak scaling, total samples fixed",
    Held.GLOBAL_BATCH: "strong scaling",
    Held.UNKNOWN: "scaling",
}


def tell_apart(curve: Curve, curves: Iterable[CurveFigures]) -> str:
    """Return the curve's workload and the settings that distinguish it from the other curves."""
    own, others = settings_of(curve), [settings_of(other.curve) for other in curves]
    telling = distinguishing(own, (other for other in others if other["workload"] == own["workload"]))
    place = telling.pop("platform", None)
    where = [f"on {place}"] if place else []
    return " ".join([curve.settings.workload, *where, *(f"{name}={value}" for name, value in telling.items())])


def settings_of(curve: Curve) -> dict[str, str]:
    """Return everything in which the runs of a curve agree, by name."""
    settings = curve.settings
    place = {
        "platform": settings.platform,
        "environment": settings.environment,
        "image": settings.image,
        "interference": settings.interference,
        "limits": settings.limits,
        "GPU": curve.gpus,
    }
    named = {"workload": settings.workload, **{name: value or "none" for name, value in place.items()}}
    parameters = {name: str(value) for name, value in json.loads(settings.parameters).items()}
    return named | parameters | dict(settings.arguments) | {name: f"{amount:,}" for name, amount in settings.amounts}


def ranks_of(numbers: Iterable[int]) -> str:
    """Return numbers of ranks in words: 1 rank; 2, 4 ranks."""
    several = sorted(set(numbers))
    return f"{', '.join(map(str, several))} rank{'s' * (several != [1])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study of scaling with everything that is shown of it.

    Attributes:
        curves: at least one.
        measures: the figures of each row beside the throughput.
        alone: succeeded runs with a throughput that are in no curve.
        elastic: runs that were left out, because their ranks may come and go.
        cancelled: runs that the user stopped; they are in no row.
        facts: about all runs but the elastic and the cancelled ones.
    """

    curves: tuple[CurveFigures, ...]
    measures: tuple[Measure, ...]
    alone: tuple[RankedRun, ...]
    elastic: tuple[Run, ...]
    cancelled: tuple[Run, ...]
    facts: Facts


def study_scaling(
    ask: Ask,
    *,
    workload: str | None,
    platform: str | None,
    experiment: str | None,
    prices: Prices | None = None,
    by: str = By.RANKS.value,
) -> Study:
    """Return the scaling of the workload, on the platform and in the experiment; None: any. `prices` None: unknown.

    Raises:
        MisuseError: a workload, platform or experiment is unknown.
        GpuAgentError: there are no two numbers of ranks to compare.
    """
    runs = find_runs(ask, find_facet("platform"), workload=workload, experiment=experiment)
    return study_runs(ask, only_with(runs, "platform", [platform] if platform else []), prices, By(by))


def study_runs(
    ask: Ask, runs: Iterable[Run], prices: Prices | None, by: By = By.RANKS, *, known: Facts | None = None
) -> Study:
    """Return the scaling of these runs; facts with costs that are `known` need not be loaded again.

    Raises:
        GpuAgentError: there are no two numbers of ranks to compare.
    """
    chosen = list(runs)
    cancelled = [run for run in chosen if run.status == CANCELLED]
    elastic = [run for run in chosen if _read_parameters(run.parameters).get("elastic") and run not in cancelled]
    fixed = [run for run in chosen if run not in elastic and run not in cancelled]
    run_ids = [run.run_id for run in fixed]
    facts = known if known and known.cover(run_ids) else with_costs(ask, load_facts(ask, run_ids), prices)
    trials = make_trials(fixed, facts)
    curves = find_curves(trials, by)
    if not curves:
        raise GpuAgentError(f"no scaling to show: {_what_there_is(trials, elastic, by)}")
    # With those that follow from prices, in the order in which programs get them.
    priced = [metric for metric in facts.derived if metric.name.startswith(f"{ITEMS_PER_MONEY.stem}_")]
    measures = (*MEASURES, *map(_metric, priced))
    figures = []
    for curve in curves:
        rows = tuple(_row(row, curve.baseline, measures) for row in curve.rows)
        members = [trial.run for row in curve.rows for trial in row.trials]
        largest = [trial.run for trial in [row for row in curve.rows if row.trials][-1].trials]
        straggler = describe_straggler(load_parts(ask, largest, facts, PartKind.RANK).values())
        unit = facts.unit(members, BY_NAME["throughput"])
        few = any(len(row.trials) < _ENOUGH for row in curve.rows)
        is_shown = any(row.speed_up and row.speed_up.is_shown for row in rows)
        more_runs = _more_runs(ask, curve, is_open=few or not is_shown)
        figures.append(CurveFigures(curve=curve, rows=rows, unit=unit, straggler=straggler, more_runs=more_runs))
    placed = {trial.run.run_id for curve in curves for row in curve.rows for trial in row.trials}
    return Study(
        curves=tuple(figures),
        measures=measures,
        alone=tuple(trial for trial in trials if trial.counts and trial.run.run_id not in placed),
        elastic=tuple(elastic),
        cancelled=tuple(cancelled),
        facts=facts,
    )


def _more_runs(ask: Ask, curve: Curve, *, is_open: bool) -> str | None:
    if not is_open:
        return None
    trials = [trial for row in curve.rows for trial in (*row.trials, *row.others)]
    workload, recorded = curve.settings.workload, find_recorded(ask, [trial.run.run_id for trial in trials])
    fewest = min(len(row.trials) for row in curve.rows)
    # After as many as are usual, twice as many.
    repeats = 2 * fewest if fewest >= USUAL_REPEATS else None
    if not any(trial.parameters for trial in trials):
        return recorded.repeat_command([trial.run.command for trial in trials], workload, repeats)
    given = [{name: value for name, value in trial.parameters.items() if name != "ranks"} for trial in trials]
    # A batch that grows with the ranks cannot be said by one option for each.
    if any(each != given[0] for each in given):
        return None
    ranks = [str(row.ranks) for row in curve.rows]
    return recorded.workload_command(workload, {"--ranks": ranks}, repeats)


def _what_there_is(trials: Sequence[RankedRun], elastic: Sequence[Run], by: By) -> str:
    counted = [trial for trial in trials if trial.counts]
    if not counted and elastic:
        return "all runs are elastic; run with a fixed number of ranks"
    if not counted:
        why = reasons(trial.run.status or "" for trial in trials if trial.run.status != "succeeded")
        return f"no run succeeded and reported a throughput; report one (docs/your-program.md), or see {why}"
    if by is By.NODES:
        return "no runs on two numbers of nodes had as many ranks on each, and the same settings"
    ranks = sorted({trial.ranks for trial in counted})
    if len(ranks) > 1:
        return f"no two of the numbers of ranks ({', '.join(map(str, ranks))}) ran with the same settings"
    other = 1 if ranks[0] > 1 else 2
    example = f"gpuagent run {counted[0].run.workload} --ranks {other} --repeat 7"
    if counted[0].run.command:  # a program of the user's own takes no --ranks
        example = f"gpuagent run --repeat 7 -- torchrun --nproc-per-node {other} SCRIPT"
    return f"all runs had {ranks_of(ranks)}; run another number, such as `{example}`"
