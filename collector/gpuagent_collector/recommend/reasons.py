"""The bounds of a workload on each side, from its runs and from those of `ceilings` there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuagent_collector.metrics.bounds import Bound, Surroundings, find_bounds
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.roofline.ceilings import WORKLOAD as CEILINGS
from gpuagent_collector.roofline.ceilings import find_ceilings
from gpuagent_collector.roofline.data import Trial, load_trials
from gpuagent_collector.roofline.points import make_points, medians_of
from gpuagent_collector.runs.cells import Block, Cell
from gpuagent_collector.runs.data import Facts, Record, load_facts, load_runs
from gpuagent_collector.runs.facets import Facet


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """The known figures of each limit on one side of a block."""

    side: str
    bounds: tuple[Bound, ...]

    @property
    def shown(self) -> tuple[Bound, ...]:
        """The bounds that are shown."""
        return tuple(bound for bound in self.bounds if bound.is_shown)


def find_reasons(ask: Ask, facet: Facet, blocks: Sequence[Block], facts: Facts) -> list[tuple[Reasons, ...]]:
    """Return the bounds of each side that has runs, block by block."""
    measured = [run for run in load_runs(ask, facet, workload=CEILINGS, experiment=None) if run.status == "succeeded"]
    ceilings = load_trials(ask, measured, load_facts(ask, [run.run_id for run in measured])) if measured else []
    runs = [run for block in blocks for cell in block.cells for run in cell.runs]
    trials = {trial.run.run_id: trial for trial in load_trials(ask, runs, facts)}
    return [
        tuple(
            Reasons(side=cell.side, bounds=_bounds(cell, [trials[run.run_id] for run in cell.runs], facts, ceilings))
            for cell in block.cells
            if cell.runs
        )
        for block in blocks
    ]


def _bounds(cell: Cell, trials: Sequence[Trial], facts: Facts, ceilings: Iterable[Trial]) -> tuple[Bound, ...]:
    compute, memory = _of_roofs(trials, ceilings)
    sessions = [facts.sessions.get(run.run_id, []) for run in cell.runs]
    surroundings = Surroundings(
        cpu_limit_cores=_cores(sessions), compute_roof_percent=compute, memory_roof_percent=memory
    )
    return find_bounds(medians_of([facts.metrics.get(run.run_id, {}) for run in cell.runs]), surroundings)


def _cores(runs: Iterable[Sequence[Record]]) -> float | None:
    """Return the cores that a run may use on all its nodes; None: unknown, or not the same for all runs."""
    limits: set[float | None] = set()
    for sessions in runs:
        by_node = {session["node_id"]: session["cpu_limit_cores"] or session["cpu_threads"] for session in sessions}
        limits.add(sum(by_node.values()) if by_node and None not in by_node.values() else None)
    return limits.pop() if len(limits) == 1 else None


def _of_roofs(trials: Sequence[Trial], ceilings: Iterable[Trial]) -> tuple[float | None, float | None]:
    """Return FLOPs and memory traffic of a step by its time, in percent of the measured peaks; None: unknown."""
    points = make_points(trials)
    found = find_ceilings(trials, ceilings)
    if len(points) != 1 or not found:
        return None, None
    (point,), peak, bandwidth = points, found.roofs.peak(points[0].mix), found.roofs.bytes_per_second
    return (
        None if peak is None else 100 * point.flops_per_second / peak,
        100 * point.traffic_bytes / point.seconds / bandwidth if point.traffic_bytes and bandwidth else None,
    )
