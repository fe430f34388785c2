"""Everything about one run or one side: from the request to figures, phases, curves, kernels and output."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuagent_collector.compare.comparison import Comparison, Request, compare
from gpuagent_collector.profile.data import traced_runs
from gpuagent_collector.profile.study import Chosen, study_chosen
from gpuagent_collector.profile.study import Study as Profile
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.named_runs import find_run
from gpuagent_collector.query.recorder import Recorder
from gpuagent_collector.runs.find import median_run
from gpuagent_collector.show.details import Details, load_details
from gpuagent_collector.show.links import Point, load_points
from gpuagent_collector.show.stacks import Stack, load_stacks
from gpuagent_common.errors import GpuAgentError, MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """Runs with everything that is shown of them.

    Attributes:
        comparison: of one side, so without a test.
        details: of the only run; None: there are several.
        profile: the kernels of the median traced run of the first block; None: no run has a trace.
        stacks: what `memory-limit` found; empty: these are no runs of it.
        points: what `collectives` measured; empty likewise.
        statements: what the store was asked.
    """

    comparison: Comparison
    details: Details | None
    profile: Profile | None
    stacks: tuple[Stack, ...]
    points: tuple[Point, ...]
    statements: Sequence[str]


def study_show(ask: Ask, name: str | None, request: Request) -> Showing:
    """Return everything about a run, about the runs of a platform, experiment or workload, or about all of the request.

    Args:
        ask: runs a query on the store.
        name: a platform, an experiment, a workload, a run or its unique beginning; None: all runs.
        request: the other conditions.

    Raises:
        MisuseError: nothing has this name, or a condition is invalid.
        GpuAgentError: the store has no runs, or none that succeeded.
    """
    recorder = Recorder(ask)
    asking = recorder.about("show")
    comparison = compare(asking, _choose(asking, name, request))
    return Showing(
        comparison=comparison,
        details=load_details(asking, comparison.layout),
        profile=_profile(asking, comparison),
        stacks=load_stacks(asking, comparison.layout.run_ids),
        points=load_points(asking, comparison.layout.run_ids),
        statements=recorder.statements["show"],
    )


def _choose(ask: Ask, name: str | None, request: Request) -> Request:
    """Return the request for the named runs."""
    if name is None:
        return replace(request, by="all")
    if ask("SELECT 1 FROM runs WHERE platform = ? LIMIT 1", [name]):
        return replace(request, by="platform", values=(name,))
    if ask("SELECT 1 FROM runs WHERE experiment = ? LIMIT 1", [name]):
        return replace(request, by="all", experiment=name)
    if ask("SELECT 1 FROM runs WHERE workload = ? LIMIT 1", [name]):
        return replace(request, by="all", workload=name)
    run = find_run(ask, name)
    if run.status is None:
        raise MisuseError(f"no run, platform, experiment or workload is named {name}; `collector runs` lists the runs")
    return replace(request, by="run", values=(run.run_id,), every_status=True)


def _profile(ask: Ask, comparison: Comparison) -> Profile | None:
    each = comparison.request.each
    traced = traced_runs(ask)
    (cell,) = [cell for cell in comparison.layout.blocks[0].cells if cell.runs][:1]
    runs = [run for run in cell.runs if run.run_id in traced]
    if not runs:
        return None
    run = median_run(runs, comparison.facts, comparison.figures.primary.name)
    try:
        return study_chosen(ask, Chosen(runs=((cell.side, run, len(runs)),), facts=comparison.facts), each)
    except GpuAgentError:  # a trace without any operation
        return None
