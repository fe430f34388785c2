"""A whole profile: from what was asked to runs, and their operations side by side."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.compare.comparison import find_runs
from gpuagent_collector.compare.specs import SpecRow, spec_rows
from gpuagent_collector.profile.choice import Chosen, choose_medians, choose_runs
from gpuagent_collector.profile.data import load_operations, load_step_seconds
from gpuagent_collector.profile.lanes import Table, make_tables
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Block, Cell, Layout
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.facets import Facet, find_facet
from gpuagent_common.errors import GpuAgentError, MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the runs that are shown.

    Attributes:
        name: what it is called: A or B, or its value of the facet.
        runs: how many traced runs it is the median of; 1 where it was named itself.
        step_seconds: how long the GPU was busy in a step, and how long it was not, by result; what is known of it.
    """

    name: str
    run: Run
    runs: int
    step_seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Everything that is shown.

    Attributes:
        sides: one or two.
        tables: at least one.
        differing: in what two sides' runs, nodes, GPUs and software differ.
        differing_settings: what two sides were not asked for alike: `workload`, and names of parameters.
        other_settings: how many more sets of settings the sides have in common, that are not shown.
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
        ask: asks the store.
        values: one or two runs, or with `by` values of that facet, each of which stands for its median run.
        by: name of the facet; None: values are runs.
        workload, experiment: only runs of these; None: all.

    Raises:
        MisuseError: a run, facet, value, workload or experiment is unknown, or more than two values are given.
        GpuAgentError: there is no trace to show; says how to get one.
    """
    if not 1 <= len(values) <= 2 or len(set(values)) < len(values):
        raise MisuseError("name one run, or two different ones: `collector profile A B`")
    facet = find_facet(by or "platform")
    runs = find_runs(ask, facet, workload=workload, experiment=experiment)
    chosen = choose_runs(ask, runs, values) if by is None else choose_medians(ask, runs, facet, values)
    return study_chosen(ask, chosen)


def study_chosen(ask: Ask, chosen: Chosen) -> Study:
    """Return the profile of runs that were chosen already.

    Raises:
        GpuAgentError: their traces hold nothing that took any time.
    """
    run_ids = [run.run_id for _, run, _ in chosen.runs]
    seconds = load_step_seconds(ask, run_ids)
    operations = load_operations(ask, run_ids)
    tables = make_tables([operations.get(run_id, ()) for run_id in run_ids])
    if not tables:
        raise GpuAgentError("the traces hold no operation that took any time")
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
    """Return in what the nodes, GPUs and software of two runs differ: it may be why they launch other kernels."""
    if len(chosen.runs) < 2:
        return ()
    cells = tuple(Cell(side=name, runs=(run,), others={}) for name, run, _ in chosen.runs)
    block = Block(workload=chosen.runs[0][1].workload, parameters={}, held={}, cells=cells)
    # No run has a side of this facet, so that no property is left out as the one that is compared.
    facet = Facet(name="run", plural="runs", expression="run.run_id")
    layout = Layout(facet=facet, sides=tuple(cell.side for cell in cells), blocks=(block,), left_out=())
    return tuple(row for row in spec_rows(layout, chosen.facts) if row.differs)
