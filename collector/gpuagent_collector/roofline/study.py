"""A whole roofline: from the request to roofs, the points below them, and the runs in none."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuagent_collector.choices import PartKind
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.roofline.parts import divide_trials
from gpuagent_collector.roofline.points import Point, RoofShares, locate, make_points
from gpuagent_collector.roofline.roofs import (
    Ceilings,
    Roofs,
    Trial,
    datasheet_roofs,
    find_ceilings,
    load_trials,
)
from gpuagent_collector.runs.cells import CANCELLED
from gpuagent_collector.runs.data import Run, load_facts, load_runs
from gpuagent_collector.runs.facets import Facet, find_facet
from gpuagent_collector.runs.find import ROOFS, find_runs, only_with
from gpuagent_common.errors import GpuAgentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A point below the roofs of its device."""

    point: Point
    measured: RoofShares
    datasheet: RoofShares


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The roofs of a device, and the points that belong below them.

    Attributes:
        device: its model.
        ceilings: the measured roofs; None: no run measured them.
        datasheet: the maker's roofs; empty where no run reported them.
        placed: at least one.
    """

    device: str
    ceilings: Ceilings | None
    datasheet: Roofs
    placed: tuple[Placed, ...]

    @property
    def measured(self) -> Roofs:
        """The measured roofs; empty without any."""
        return self.ceilings.roofs if self.ceilings else _NO_ROOFS

    @property
    def is_gpu(self) -> bool:
        """Return whether the device is a GPU."""
        return any(trial.device_ids for placed in self.placed for trial in placed.point.trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A roofline with everything that is shown of it.

    Attributes:
        facet: separates points beside their settings.
        rooflines: at least one; those of one device with the same roofs together.
        without_figures: succeeded runs that report no FLOPs, or no time of a step.
        unsuccessful: runs that ended otherwise, or have not ended.
        cancelled: runs that the user stopped.
    """

    facet: Facet
    rooflines: tuple[Roofline, ...]
    without_figures: tuple[Run, ...]
    unsuccessful: tuple[Run, ...]
    cancelled: tuple[Run, ...]


_NO_ROOFS = Roofs(flops_per_second={}, bytes_per_second=None)


def study_roofline(
    ask: Ask, *, workloads: Sequence[str], by: str, platform: str | None, experiment: str | None
) -> Study:
    """Return the roofline of some workloads; empty: all. None: any platform, any experiment.

    Raises:
        MisuseError: a workload, facet, platform or experiment is unknown.
        GpuAgentError: no run reports the figures of a roofline.
    """
    facet = find_facet(by)
    runs = find_runs(ask, facet, workload=None, experiment=experiment)
    chosen = only_with(only_with(runs, "platform", [platform] if platform else []), "workload", workloads)
    return study_runs(ask, facet, chosen)


def study_runs(ask: Ask, facet: Facet, runs: Iterable[Run], each: PartKind | None = None) -> Study:
    """Return the roofline of these runs, or of each rank of them, named by its rank or its GPU.

    Raises:
        GpuAgentError: none reports the figures of a roofline.
    """
    chosen = list(runs)
    succeeded = [run for run in chosen if run.status == "succeeded" and run.workload != ROOFS]
    measured = [run for run in load_runs(ask, facet, workload=ROOFS, experiment=None) if run.status == "succeeded"]
    together = [*succeeded, *measured]
    facts = load_facts(ask, [run.run_id for run in together])
    trials = load_trials(ask, together, facts)
    drawn, ceilings = trials[: len(succeeded)], trials[len(succeeded) :]
    points = make_points(divide_trials(ask, drawn, facts, each) if each else drawn)
    if not points:
        raise GpuAgentError(
            "no roofline to draw: no run that succeeded reports the FLOPs and times of its steps; "
            "built-in training workloads do, such as `gpuagent run mnist`"
        )
    placed = {trial.run.run_id for point in points for trial in point.trials}
    return Study(
        facet=facet,
        rooflines=tuple(_rooflines(points, ceilings)),
        without_figures=tuple(run for run in succeeded if run.run_id not in placed),
        unsuccessful=tuple(run for run in chosen if run.status not in ("succeeded", CANCELLED)),
        cancelled=tuple(run for run in chosen if run.status == CANCELLED),
    )


def _rooflines(points: Iterable[Point], measured: Sequence[Trial]) -> Iterable[Roofline]:
    found: dict[tuple[str, str | None], list[tuple[Point, Ceilings | None]]] = defaultdict(list)
    for point in points:
        ceilings = find_ceilings(point.trials, measured)
        found[point.group.device, ceilings.run.run_id if ceilings else None].append((point, ceilings))
    for (device, _), members in found.items():
        # The worst of several nearnesses.
        ceilings = min((each for _, each in members if each), key=lambda each: each.nearness, default=None)
        yield _roofline(device, ceilings, [point for point, _ in members], measured)


def _roofline(device: str, ceilings: Ceilings | None, points: Sequence[Point], measured: Iterable[Trial]) -> Roofline:
    of_points = (trial.figures for point in points for trial in point.trials)
    datasheet = datasheet_roofs([*(one.figures for one in measured if one.device == device), *of_points])
    roofs = ceilings.roofs if ceilings else _NO_ROOFS
    placed = (
        Placed(point=point, measured=locate(point, roofs), datasheet=locate(point, datasheet)) for point in points
    )
    return Roofline(device=device, ceilings=ceilings, datasheet=datasheet, placed=tuple(placed))
