"""Curves of scaling, and the runs that are in none."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuagent_collector.scaling.trials import By, Held, Settings, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The runs of a curve that had the same number of ranks on the same number of nodes.

    Attributes:
        trials: those that succeeded and have a throughput; may be empty.
        others: those that ended otherwise, have not ended, or have no throughput.
    """

    ranks: int
    nodes: int
    trials: tuple[Trial, ...]
    others: tuple[Trial, ...]


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


def find_curves(trials: Sequence[Trial], by: By = By.RANKS) -> tuple[Curve, ...]:
    """Return the curves of the trials, those of weak scaling first; a trial can be in one of each kind."""
    groups: dict[tuple[Settings, str | None], list[Trial]] = defaultdict(list)
    others: dict[Settings, list[Trial]] = defaultdict(list)
    for trial in trials:
        for settings in trial.settings(by):
            if trial.counts:
                groups[settings, trial.gpus].append(trial)
            else:
                others[settings].append(trial)
    found = [_curve(settings, gpus, members, others[settings]) for (settings, gpus), members in groups.items()]
    curves = [curve for curve in found if sum(1 for row in curve.rows if row.trials) >= 2]
    return tuple(sorted(curves, key=_order))


def without_curve(trials: Iterable[Trial], curves: Iterable[Curve]) -> list[Trial]:
    """Return the trials that count and are in none of the curves."""
    placed = {trial.run.run_id for curve in curves for row in curve.rows for trial in row.trials}
    return [trial for trial in trials if trial.counts and trial.run.run_id not in placed]


def _curve(settings: Settings, gpus: str | None, trials: Iterable[Trial], others: Iterable[Trial]) -> Curve:
    points = _by_place(trials)
    # A run that failed early has no GPU yet.
    fallen = _by_place(other for other in others if other.gpus in (gpus, None))
    rows = [
        Row(ranks=ranks, nodes=nodes, trials=tuple(points[ranks, nodes]), others=tuple(fallen[ranks, nodes]))
        for ranks, nodes in sorted(points | fallen)
    ]
    return Curve(settings=settings, gpus=gpus, rows=tuple(rows))


def _by_place(trials: Iterable[Trial]) -> dict[tuple[int, int], list[Trial]]:
    groups: dict[tuple[int, int], list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[trial.place].append(trial)
    return groups


def _order(curve: Curve) -> tuple[object, ...]:
    settings = curve.settings
    runs = sum(len(row.trials) for row in curve.rows)
    place = (settings.platform or "", settings.environment or "", settings.image or "", curve.gpus or "")
    rest = (settings.interference or "", settings.limits or "", settings.parameters, settings.amounts)
    return (settings.workload, *place, list(Held).index(settings.held), -runs, *rest)
