"""The choice of runs for a profile."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuagent_collector.profile.data import traced_runs, why_not_traced
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import choose_sides, lay_out
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import CONDITIONS, Facet
from gpuagent_collector.runs.find import median_run
from gpuagent_common.errors import GpuAgentError, MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The runs to show, each with the name of its side and the number of runs of which it is the median."""

    runs: tuple[tuple[str, Run, int], ...]
    facts: Facts
    other_settings: int = 0


def choose_runs(ask: Ask, runs: Iterable[Run], run_ids: Sequence[str]) -> Chosen:
    """Return the named runs, as A and B.

    Raises:
        MisuseError: there is no such run.
        GpuAgentError: one has no trace; with the reason, or how to get one.
    """
    by_id = {run.run_id: run for run in runs}
    for run_id in run_ids:
        if run_id not in by_id:
            raise MisuseError(
                f"no run has the id {run_id}; list runs with `collector runs`, or name values of a facet with --by"
            )
    traced = traced_runs(ask)
    for run_id in run_ids:
        if run_id not in traced:
            raise GpuAgentError(f"the run {run_id} has no trace: {why_not_traced(ask, run_id) or HOW_TO_TRACE}")
    named = zip("AB", run_ids, strict=False)
    return Chosen(runs=tuple((name, by_id[run_id], 1) for name, run_id in named), facts=load_facts(ask, run_ids))


def choose_medians(ask: Ask, runs: Sequence[Run], facet: Facet, values: Sequence[str]) -> Chosen:
    """Return the median run of each value of the facet, among traced runs that agree in all else.

    Raises:
        MisuseError: no run has the value, or the runs are of several workloads.
        GpuAgentError: no run with a value has a trace, or none of both sides are alike.
    """
    sides = tuple(values)
    if len(values) > 1:
        sides = choose_sides(runs, facet, values, None)
    elif sides[0] not in (present := sorted({run.side for run in runs if run.side is not None})):
        raise MisuseError(f"no run has the {facet.name} {sides[0]}; there are: {', '.join(present)}")
    traced = traced_runs(ask)
    with_trace = [run for run in runs if run.run_id in traced and run.status == "succeeded" and run.side in sides]
    for side in sides:
        if not any(run.side == side for run in with_trace):
            raise GpuAgentError(f"no run with the {facet.name} {side} that succeeded has a trace: {HOW_TO_TRACE}")
    workloads = sorted({run.workload for run in with_trace})
    if len(workloads) > 1:
        raise MisuseError(f"name one of the workloads with --workload: {', '.join(workloads)}")
    members, *others = _alike(with_trace, facet, sides)
    facts = load_facts(ask, [run.run_id for _, of_side in members for run in of_side])
    return Chosen(
        # By throughput, as in a comparison of the same runs.
        runs=tuple((side, median_run(of_side, facts, "throughput"), len(of_side)) for side, of_side in members),
        facts=facts,
        other_settings=len(others),
    )


# The runs of each side.
Members = Sequence[tuple[str, Sequence[Run]]]


def _alike(runs: Sequence[Run], facet: Facet, sides: Sequence[str]) -> list[Members]:
    """Return the runs that agree in all but the facet, the largest group first."""
    if len(sides) > 1:
        blocks = lay_out(runs, facet, sides).blocks
        return [[(cell.side, cell.runs) for cell in block.cells] for block in blocks]
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        key = (run.parameters, *(getattr(run, condition) for condition in CONDITIONS))
        groups.setdefault(key, []).append(run)
    return [[(sides[0], group)] for group in sorted(groups.values(), key=lambda group: -len(group))]


# The remedy for runs without a trace.
HOW_TO_TRACE = (
    "on a GPU every training run takes a short one, except with `--trace false`; "
    "with `--profile` it traces operators, on a CPU, too"
)
