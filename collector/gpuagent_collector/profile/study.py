"""A whole profile: from the request to runs, and their operations side by side."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.profile.choice import Chosen, choose_medians, choose_runs
from gpuagent_collector.profile.data import load_operations, load_step_seconds
from gpuagent_collector.profile.lanes import Table, make_tables
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Block, Cell, Layout
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.facets import Facet, find_facet
from gpuagent_collector.runs.find import find_runs
from gpuagent_collector.runs.specs import SpecRow, spec_rows
from gpuagent_common.errors import GpuAgentError, MisuseError


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
        other_settings: number of other sets of settings that the sides have in common; they are not shown.
    """

    sides: tuple[Side, ...]
    tables: tuple[Table, ...]
    differing: tuple[SpecRow, ...]
    differing_settings: tuple[str, ...]
    other_settings: int


def study_profile(
    ask: Ask, *, values: Sequence[str], by: str | None, workload: str | None, experiment: str | None
) -> Study:
    """Return the profile of one run, or of two side by side.

    Args:
        ask: runs a query on the store.
        values: one or two runs, or with `by` values of that facet, each of which stands for its median run.
        by: name of the facet; None: values are runs.
        workload, experiment: only runs of these; None: all.

    Raises:
        MisuseError: a run, facet, value, workload or experiment is unknown, or more than two values are given.
        GpuAgentError: there is no trace to show; with how to get one.
    """
    if not 1 <= len(values) <= 2 or len(set(values)) < len(values):
        raise MisuseError("name one run, or two different ones: `collector profile A B`")
    facet = find_facet(by or "platform")
    runs = find_runs(ask, facet, workload=workload, experiment=experiment)
    chosen = choose_runs(ask, runs, values) if by is None else choose_medians(ask, runs, facet, values)
    return study_chosen(ask, chosen)


def study_chosen(ask: Ask, chosen: Chosen) -> Study:
    """Return the profile of chosen runs.

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
        differing=_differing(chosen),
        differing_settings=_differing_settings(runs),
        other_settings=chosen.other_settings,
    )


def _differing_settings(runs: Sequence[Run]) -> tuple[str, ...]:
    settings = [{"workload": run.workload, **json.loads(run.parameters)} for run in runs]
    names = dict.fromkeys(name for each in settings for name in each)
    return tuple(name for name in names if any(each.get(name) != settings[0].get(name) for each in settings))


def _differing(chosen: Chosen) -> tuple[SpecRow, ...]:
    """Return the properties in which two runs differ: these may explain different kernels."""
    if len(chosen.runs) < 2:
        return ()
    cells = tuple(Cell(side=name, runs=(run,), others={}) for name, run, _ in chosen.runs)
    block = Block(workload=chosen.runs[0][1].workload, parameters={}, held={}, cells=cells)
    # No property has this facet's name, so none is left out as the compared one.
    facet = Facet(name="run", plural="runs", expression="run.run_id")
    layout = Layout(facet=facet, sides=tuple(cell.side for cell in cells), blocks=(block,), left_out=())
    return tuple(row for row in spec_rows(layout, chosen.facts) if row.differs)
