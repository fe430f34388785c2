"""What bounds a workload on each side, by all that its runs and those of `ceilings` there tell."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpuagent_collector.metrics.bounds import Bound, Surroundings, find_bounds
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.roofline.ceilings import WORKLOAD as CEILINGS
from gpuagent_collector.roofline.ceilings import find_ceilings
from gpuagent_collector.roofline.data import Trial, load_trials
from gpuagent_collector.roofline.points import Point, make_points
from gpuagent_collector.roofline.roofs import Roofs
from gpuagent_collector.runs.cells import Block, Cell
from gpuagent_collector.runs.data import Facts, Record, load_facts, load_runs
from gpuagent_collector.runs.facets import Facet


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """What is known of each limit on one side of a block."""

    side: str
    bounds: tuple[Bound, ...]

    @property
    def shown(self) -> tuple[Bound, ...]:
        """Those that are shown; empty: what bounds it is not."""
        return tuple(bound for bound in self.bounds if bound.is_shown)


def find_reasons(ask: Ask, facet: Facet, blocks: Sequence[Block], facts: Facts) -> list[tuple[Reasons, ...]]:
    """Return what bounds each side that has runs, block by block."""
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
    return find_bounds(_medians([facts.metrics.get(run.run_id, {}) for run in cell.runs]), surroundings)


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for metrics in runs for name in metrics)
    return {name: median(metrics[name] for metrics in runs if name in metrics) for name in names}


def _cores(runs: Iterable[Sequence[Record]]) -> float | None:
    """Return the cores that a run may use on all its nodes; None: not known, or not the same for all runs."""
    limits = {_cores_of_nodes(sessions) for sessions in runs}
    return limits.pop() if len(limits) == 1 else None


def _cores_of_nodes(sessions: Sequence[Record]) -> float | None:
    by_node = {session["node_id"]: session["cpu_limit_cores"] or session["cpu_threads"] for session in sessions}
    return sum(by_node.values()) if by_node and None not in by_node.values() else None


def _of_roofs(trials: Sequence[Trial], ceilings: Iterable[Trial]) -> tuple[float | None, float | None]:
    """Return FLOPs and memory traffic of a step by its time, in percent of what was measured; None: not known."""
    points = make_points(trials)
    found = find_ceilings(trials, ceilings)
    if len(points) != 1 or not found:
        return None, None
    return _compute_percent(points[0], found.roofs), _memory_percent(points[0], found.roofs)


def _compute_percent(point: Point, roofs: Roofs) -> float | None:
    peak = roofs.peak(point.mix)
    return None if peak is None else 100 * point.flops_per_second / peak


def _memory_percent(point: Point, roofs: Roofs) -> float | None:
    if point.traffic_bytes is None or roofs.bytes_per_second is None:
        return None
    return 100 * point.traffic_bytes / point.seconds / roofs.bytes_per_second
