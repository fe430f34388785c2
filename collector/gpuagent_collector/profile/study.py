"""A profile of one run or of two side by side: the runs that are chosen, their operations, and warnings."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.choices import PartKind
from gpuagent_collector.output.document import Caveat
from gpuagent_collector.profile.data import load_operations, load_step_seconds, traced_runs, why_not_traced
from gpuagent_collector.profile.each import PartTimes, load_part_times
from gpuagent_collector.profile.lanes import Table, make_tables
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Block, Cell, Layout, choose_sides, lay_out
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import CONDITIONS, Facet, find_facet
from gpuagent_collector.runs.find import find_runs, median_run
from gpuagent_collector.runs.specs import SpecRow, spec_rows
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the shown runs.

    Attributes:
        name: A or B, or its value of the facet.
        runs: number of traced runs of which it is the median; 1 where it was named itself.
        step_seconds: busy and idle time of the GPU in a step, as far as known, by result.
    """

    name: str
    run: Run
    runs: int
    step_seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A profile with everything that is shown of it.

    Attributes:
        sides: one or two.
        tables: at least one.
        differing: properties of runs, nodes, GPUs and software in which two sides differ.
        differing_settings: `workload` and names of parameters in which two sides differ.
        parts: the operations of each part of each side; empty unless requested.
        other_settings: number of other sets of settings that the sides have in common; they are not shown.
    """

    sides: tuple[Side, ...]
    tables: tuple[Table, ...]
    differing: tuple[SpecRow, ...]
    differing_settings: tuple[str, ...]
    other_settings: int
    parts: tuple[PartTimes, ...] = ()


def study_profile(
    ask: Ask,
    *,
    values: Sequence[str],
    by: str | None,
    workload: str | None,
    experiment: str | None,
    each: PartKind | None = None,
) -> Study:
    """Return the profile of one run, or of two side by side.

    Args:
        ask: runs a query on the store.
        values: one or two runs, or with `by` values of that facet, each of which stands for its median run.
        by: name of the facet; None: values are runs.
        workload, experiment: only runs of these; None: all.
        each: the parts of the runs whose operations are shown too; None: none.

    Raises:
        MisuseError: a run, facet, value, workload or experiment is unknown, or more than two values are given.
        GpuAgentError: there is no trace to show; with how to get one.
    """
    if not 1 <= len(values) <= 2 or len(set(values)) < len(values):
        raise MisuseError("name one run, or two different ones: `collector profile A B`")
    facet = find_facet(by or "platform")
    runs = find_runs(ask, facet, workload=workload, experiment=experiment)
    chosen = choose_runs(ask, runs, values) if by is None else choose_medians(ask, runs, facet, values)
    return study_chosen(ask, chosen, each)


def study_chosen(ask: Ask, chosen: Chosen, each: PartKind | None = None) -> Study:
    """Return the profile of chosen runs, and of their parts on request.

    Raises:
        GpuAgentError: their traces contain no operation that took any time.
    """
    run_ids = [run.run_id for _, run, _ in chosen.runs]
    seconds = load_step_seconds(ask, run_ids)
    operations = load_operations(ask, run_ids)
    tables = make_tables([operations.get(run_id, ()) for run_id in run_ids])
    if not tables:
        raise GpuAgentError("the traces contain no operation that took any time")
    runs = [run for _, run, _ in chosen.runs]
    return Study(
        sides=tuple(
            Side(name=name, run=run, runs=number, step_seconds=seconds.get(run.run_id, {}))
            for name, run, number in chosen.runs
        ),
        tables=tables,
        differing=_find_differences(chosen),
        differing_settings=_differing_settings(runs),
        other_settings=chosen.other_settings,
        parts=tuple(load_part_times(ask, name, run, chosen.facts, each) for name, run, _ in chosen.runs)
        if each
        else (),
    )


def _differing_settings(runs: Sequence[Run]) -> tuple[str, ...]:
    settings = [{"workload": run.workload, **json.loads(run.parameters)} for run in runs]
    names = dict.fromkeys(name for each in settings for name in each)
    return tuple(name for name in names if any(each.get(name) != settings[0].get(name) for each in settings))


def _find_differences(chosen: Chosen) -> tuple[SpecRow, ...]:
    """Return the properties in which two runs differ: these may explain different kernels."""
    if len(chosen.runs) < 2:
        return ()
    cells = tuple(Cell(side=name, runs=(run,), others={}) for name, run, _ in chosen.runs)
    block = Block(workload=chosen.runs[0][1].workload, parameters={}, held={}, cells=cells)
    # No property has this facet's name, so none is left out as the compared one.
    facet = Facet(name="run", plural="runs", expression="run.run_id")
    layout = Layout(facet=facet, sides=tuple(cell.side for cell in cells), blocks=(block,), left_out=())
    return tuple(row for row in spec_rows(layout, chosen.facts) if row.differs)


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    return tuple(caveat for check in CHECKS for caveat in check(study))


def _other_work(study: Study) -> Iterator[Caveat]:
    if study.differing_settings:
        yield Caveat(
            code="settings_differ",
            text=f"the two runs had different settings: {', '.join(study.differing_settings)}",
            remedy="compare runs of the same workload with the same parameters",
        )


def _one_run(study: Study) -> Iterator[Caveat]:
    if len(study.sides) > 1:
        yield Caveat(
            code="one_run",
            text="these are a few steps of one run a side: they do not show whether the sides differ by more "
            "than chance",
            remedy="repeat both, and compare the repeats (docs/comparing.md)",
        )


def _one_sided(study: Study) -> Iterator[Caveat]:
    titles = [table.lane.title for table in study.tables if None in table.totals]
    if titles:
        yield Caveat(
            code="one_sided",
            text=f"only one side has: {'; '.join(titles)}",
            remedy="run both with `--profile`, or both without, on GPUs or both on CPUs",
        )


def _others(study: Study) -> Iterator[Caveat]:
    if any(row.unsure and row.only_on is not None for table in study.tables for row in table.rows):
        yield Caveat(
            code="not_listed",
            text="a run lists the 100 longest operations of each kind; one that is missing on a side may be "
            "among the rest",
            remedy="check its time on the other side: on this one it is shorter than all that are listed",
        )


def _more_settings(study: Study) -> Iterator[Caveat]:
    if study.other_settings:
        sets = f"{counted(study.other_settings, 'other set')} of settings"
        yield Caveat(
            code="other_settings",
            text=f"traced runs with {sets} are not shown",
            remedy="narrow with --workload and --experiment, or name the runs themselves",
        )


# Every check, in the order in which warnings are shown.
CHECKS: tuple[Callable[[Study], Iterator[Caveat]], ...] = (_other_work, _one_run, _one_sided, _others, _more_settings)
