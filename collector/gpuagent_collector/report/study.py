"""Everything that a report shows: a comparison, and all other data of the same runs."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from gpuagent_collector.compare.comparison import Comparison, Request, compare
from gpuagent_collector.profile.data import traced_runs
from gpuagent_collector.profile.study import HOW_TO_TRACE, Chosen, study_chosen
from gpuagent_collector.profile.study import Study as Profile
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.literal import with_values
from gpuagent_collector.recommend.study import Reasons, find_reasons
from gpuagent_collector.report.courses import Course, load_course
from gpuagent_collector.report.made_by import Origin, load_origin
from gpuagent_collector.report.step_times import StepTimes, load_step_times
from gpuagent_collector.roofline.study import Study as Roofline
from gpuagent_collector.roofline.study import study_runs as study_roofline
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.find import find_runs, median_run
from gpuagent_collector.scaling.study import Study as Scaling
from gpuagent_collector.scaling.study import study_runs as study_scaling
from gpuagent_common.errors import GpuAgentError

# More curves than these in one chart would be indistinguishable.
MOST_SIDES = 6
# Of more blocks than these only the largest are drawn; tables have all.
MOST_BLOCKS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A part that cannot be shown; `reason` includes the remedy."""

    reason: str


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that is shown.

    Attributes:
        source: what was read, for people.
        written_at: UTC.
        courses: of the median run of each side in the first block; of no more than MOST_SIDES.
        step_times: of each of the first MOST_BLOCKS blocks.
        profiles: the baseline beside each other side, by their median traced runs in the first block.
        reasons: of each block, what bounds it on each side.
        statements: what the store was asked, by topic.
    """

    source: str
    written_at: datetime
    comparison: Comparison
    courses: tuple[Course, ...]
    step_times: tuple[tuple[StepTimes, ...], ...]
    roofline: Roofline | Missing
    profiles: tuple[Profile, ...] | Missing
    scaling: Scaling | Missing
    reasons: tuple[tuple[Reasons, ...], ...]
    origin: Origin
    statements: Mapping[str, Sequence[str]]


class Recorder:
    """A recorder of queries, by topic."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._statements: dict[str, list[str]] = defaultdict(list)

    @property
    def statements(self) -> Mapping[str, Sequence[str]]:
        """The statements with their values filled in, by topic, in the order in which they were asked."""
        return self._statements

    def about(self, topic: str) -> Ask:
        """Return a function that asks the store and keeps the statements under a topic."""

        def ask(sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
            self._statements[topic].append(f"{with_values(sql.strip(), parameters)};")
            return self._ask(sql, parameters)

        return ask


def make_report(ask: Ask, request: Request, *, source: str, now: datetime) -> Report:
    """Ask for all that the report of a comparison shows.

    Raises:
        MisuseError: a facet, value, workload, experiment or metric is unknown.
        GpuAgentError: there is nothing to compare.
    """
    recorder = Recorder(ask)
    comparison = compare(recorder.about("Comparison"), replace(request, series=False, everything=True))
    layout, facts = comparison.layout, comparison.facts
    return Report(
        source=source,
        written_at=now,
        comparison=comparison,
        courses=_courses(recorder.about("Over time"), comparison),
        step_times=_step_times(recorder.about("Distributions"), comparison),
        roofline=_try(lambda: study_roofline(recorder.about("Roofline"), layout.facet, _runs(comparison))),
        profiles=_try(lambda: _profiles(recorder.about("Kernels and operators"), comparison)),
        scaling=_try(lambda: _scaling(recorder.about("Scaling"), comparison)),
        reasons=tuple(find_reasons(recorder.about("Bounds"), layout.facet, layout.blocks, facts)),
        origin=load_origin(recorder.about("How it was made"), comparison),
        statements=recorder.statements,
    )


def _try(make: Callable[[], Found]) -> Found | Missing:
    try:
        return make()
    except GpuAgentError as error:
        return Missing(reason=str(error))


def _runs(comparison: Comparison) -> list[Run]:
    return [run for block in comparison.layout.blocks for cell in block.cells for run in cell.runs]


def _courses(ask: Ask, comparison: Comparison) -> tuple[Course, ...]:
    primary, facts = comparison.figures.primary.name, comparison.facts
    cells = [cell for cell in comparison.layout.blocks[0].cells if cell.runs][:MOST_SIDES]
    return tuple(load_course(ask, median_run(cell.runs, facts, primary), facts) for cell in cells)


def _step_times(ask: Ask, comparison: Comparison) -> tuple[tuple[StepTimes, ...], ...]:
    return tuple(load_step_times(ask, block) for block in comparison.layout.blocks[:MOST_BLOCKS])


def _profiles(ask: Ask, comparison: Comparison) -> tuple[Profile, ...]:
    """Return the baseline beside each other side that has a trace, or the only side that has one."""
    facts, primary = comparison.facts, comparison.figures.primary.name
    traced = traced_runs(ask)
    sides = []
    for cell in comparison.layout.blocks[0].cells:
        runs = [run for run in cell.runs if run.run_id in traced]
        if runs:
            sides.append((cell.side, median_run(runs, facts, primary), len(runs)))
    if not sides:
        raise GpuAgentError(f"no run of {comparison.layout.blocks[0].workload} has a trace: {HOW_TO_TRACE}")
    first, *others = sides[:MOST_SIDES]
    pairs: list[tuple[tuple[str, Run, int], ...]] = [(first, other) for other in others]
    return tuple(study_chosen(ask, Chosen(runs=pair, facts=facts)) for pair in pairs or [(first,)])


def _scaling(ask: Ask, comparison: Comparison) -> Scaling:
    """Return how the workloads scale, in all runs of the sides: other numbers of ranks are other blocks, or in none."""
    layout, request = comparison.layout, comparison.request
    runs = find_runs(ask, layout.facet, workload=request.workload, experiment=request.experiment, where=request.where)
    return study_scaling(ask, [run for run in runs if run.side in layout.sides], request.prices)
