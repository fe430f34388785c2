"""Runs that differ only in their number of ranks, and the curves that they make."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any

from gpuagent_collector.runs.data import Facts, Run


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
class Settings:
    """The settings in which all runs of a curve agree.

    Attributes:
        parameters: canonical JSON of the workload's parameters, except those in `amounts`.
        amounts: the sizes that are held while the ranks grow, by name.
    """

    workload: str
    platform: str | None
    environment: str | None
    image: str | None
    interference: str | None
    limits: str | None
    parameters: str
    held: Held
    amounts: tuple[tuple[str, int], ...]


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
    """

    run: Run
    ranks: int
    gpus: str | None
    nodes: frozenset[str]
    metrics: Mapping[str, float]
    parameters: Mapping[str, Any]
    is_short: bool

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
        return Settings(
            workload=self.run.workload,
            platform=self.run.platform,
            environment=self.run.environment,
            image=self.run.image,
            interference=self.run.interference,
            limits=self.run.limits,
            parameters=json.dumps(others, sort_keys=True),
            held=held,
            amounts=tuple(amounts.items()),
        )


def make_trials(runs: Iterable[Run], facts: Facts) -> tuple[RankedRun, ...]:
    """Return the runs whose number of ranks is known: as reported, or else as requested."""
    return tuple(trial for run in runs if (trial := _trial(run, facts)))


def _trial(run: Run, facts: Facts) -> RankedRun | None:
    parameters = _parameters(run)
    metrics = facts.metrics.get(run.run_id, {})
    asked = whole(parameters.get("ranks"))
    ranks = whole(metrics.get("ranks")) or (asked * run.node_count if asked else None)
    if ranks is None:
        return None
    models = {device["name"] or "unknown GPU" for device in facts.devices.get(run.run_id, [])}
    nodes = {session["hostname"] or "unknown node" for session in facts.sessions.get(run.run_id, [])}
    return RankedRun(
        run=run,
        ranks=ranks,
        gpus=", ".join(sorted(models)) or None,
        nodes=frozenset(nodes),
        metrics=metrics,
        parameters=parameters,
        is_short=run.run_id in facts.short,
    )


def is_elastic(run: Run) -> bool:
    """Return whether the run's ranks may come and go while it lasts."""
    return bool(_parameters(run).get("elastic"))


def whole(value: object) -> int | None:
    """Return a whole number from 1 up; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 and value == value // 1:
        return int(value)
    return None


# Traces and counters are taken after the measured phase, so they do not change a point.
_APART = frozenset({"ranks", "nodes", "batch-size", "steps", "elastic", "trace", "profile", "counters"})


def _parameters(run: Run) -> dict[str, Any]:
    values = json.loads(run.parameters).items()
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


def without_curve(trials: Iterable[RankedRun], curves: Iterable[Curve]) -> list[RankedRun]:
    """Return the trials that count and are in none of the curves."""
    placed = {trial.run.run_id for curve in curves for row in curve.rows for trial in row.trials}
    return [trial for trial in trials if trial.counts and trial.run.run_id not in placed]


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
