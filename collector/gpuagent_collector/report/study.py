"""Everything that a report shows: a comparison, and all other data of the same runs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from gpuagent_collector.answers import profile, roofline, serving_curves, show
from gpuagent_collector.answers import scaling_curves as scaling
from gpuagent_collector.answers.profile_data import traced_runs
from gpuagent_collector.compare.choosing import compare_what_differs
from gpuagent_collector.compare.comparison import Comparison, Request, cost_row
from gpuagent_collector.compare.matrix import USUAL_METRICS, Matrix, tabulate
from gpuagent_collector.query.ask import Ask, Recorder
from gpuagent_collector.recommend.bottlenecks import Reasons, find_reasons
from gpuagent_collector.runs.cells import Block
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.find import median_run
from gpuagent_collector.runs.series import Course, load_courses
from gpuagent_common.errors import GpuAgentError

# Points of a curve at most: about one for each pixel that it has; of several blocks fewer, for the page's size.
_BUCKETS, _LEAST_BUCKETS = 500, 120

_QUANTILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The measured steps of all runs of a cell together.

    Attributes:
        steps: how many there are.
        seconds: evenly spaced quantiles, from the shortest to the longest; those between by a digest.
    """

    side: str
    steps: int
    seconds: tuple[float, ...]


def load_step_times(ask: Ask, block: Block) -> tuple[StepTimes, ...]:
    """Return the step times of each side that reported steps."""
    found = []
    for cell in block.cells:
        for row in ask(_STEPS, [[run.run_id for run in cell.runs]]) if cell.runs else ():
            if row["steps"]:
                seconds = (row["shortest"], *row["between"], row["longest"])
                found.append(StepTimes(side=cell.side, steps=row["steps"], seconds=seconds))
    return tuple(found)


_SHARES = ", ".join(f"{number / _QUANTILES:g}" for number in range(1, _QUANTILES))

_STEPS = f"""
SELECT count(seconds) AS steps, min(seconds) AS shortest, max(seconds) AS longest,
       -- A digest: exact quantiles of millions of steps would take a minute.
       approx_quantile(seconds, [{_SHARES}]) AS between
FROM (
    -- Handing a step to a GPU takes another time than the step does.
    SELECT coalesce(gpu_seconds, wall_seconds) AS seconds FROM steps
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND phase = 'measure'
)"""  # noqa: S608 - numbers of ours


def _started(ask: Ask, runs: Sequence[Run]) -> Mapping[tuple[str, str], int]:
    rows = ask(_COMMANDS, [[run.run_id for run in runs]])
    command_of = {run_id: row["command"] for row in rows for run_id in row["run_ids"]}
    started = ((run.side or "", command_of.get(run.run_id)) for run in runs)
    return Counter((side, command) for side, command in started if command not in (None, "[]"))


_COMMANDS = """
SELECT CAST(command AS VARCHAR) AS command, list(run_id) AS run_ids FROM runs
WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) GROUP BY command"""


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
        place: the words by which commands read the same.
        written_at: UTC.
        courses: of each of the first MOST_BLOCKS blocks: of the median run of each side, of no more than MOST_SIDES.
        step_times: of each of these blocks.
        profiles: of each of these blocks: the baseline beside each other side, by their median traced runs.
        serving: of servers under load; None: no run measured one.
        reasons: of each block, what bounds it on each side.
        started: (side, command as JSON) → how many runs it started.
        matrix: the metrics that matter most, of all workloads and sides; missing for a single run.
        details: of the only run; None: there are several.
        statements: what the store was asked, by topic.
    """

    source: str
    place: Sequence[str]
    written_at: datetime
    comparison: Comparison
    courses: tuple[tuple[Course, ...], ...]
    step_times: tuple[tuple[StepTimes, ...], ...]
    roofline: roofline.Study | Missing
    profiles: tuple[tuple[profile.Study, ...], ...] | Missing
    scaling: scaling.Study | Missing
    serving: serving_curves.Study | None
    reasons: tuple[tuple[Reasons, ...], ...]
    started: Mapping[tuple[str, str], int]
    matrix: Matrix | Missing
    details: show.Details | None
    statements: Mapping[str, Sequence[str]]


def make_report(ask: Ask, request: Request, *, source: str, place: Sequence[str] = (), now: datetime) -> Report:
    """Ask for all that the report of a comparison shows.

    Raises:
        MisuseError: a facet, value, workload, experiment or metric is unknown.
        GpuAgentError: there is nothing to compare.
    """
    recorder = Recorder(ask)
    comparison = compare_what_differs(recorder.about("Comparison"), replace(request, series=False, everything=True))
    layout, facts = comparison.layout, comparison.facts
    blocks = layout.blocks[:MOST_BLOCKS]
    return Report(
        source=source,
        place=place,
        written_at=now,
        comparison=comparison,
        courses=tuple(
            # The statements of further blocks are the same, of other runs, and would double the page.
            _load_courses(ask if number else recorder.about("Over time"), comparison, block)
            for number, block in enumerate(blocks)
        ),
        step_times=tuple(load_step_times(recorder.about("Distributions"), block) for block in blocks),
        roofline=_try(lambda: roofline.study_runs(recorder.about("Roofline"), layout.facet, comparison.layout.runs)),
        profiles=_try(lambda: _profiles(recorder.about("Kernels and operators"), comparison)),
        # In all runs of the sides: other numbers of ranks are other blocks, or in none.
        scaling=_try(
            lambda: scaling.study_runs(
                recorder.about("Scaling"),
                [run for run in comparison.runs if run.side in layout.sides],
                request.prices,
                known=facts,
            )
        ),
        serving=_serving(recorder.about("Serving"), comparison),
        reasons=tuple(find_reasons(recorder.about("Bounds"), layout.facet, layout.blocks, facts)),
        started=_started(recorder.about("How it was made"), comparison.layout.runs),
        matrix=_try(lambda: _matrix(recorder.about("Table"), comparison)),
        details=show.load_details(recorder.about("Run"), layout),
        statements=recorder.statements,
    )


def _load_courses(ask: Ask, comparison: Comparison, block: Block) -> tuple[Course, ...]:
    facts, primary = comparison.facts, comparison.figures.primary.name
    runs = [median_run(cell.runs, facts, primary) for cell in block.cells if cell.runs][:MOST_SIDES]
    buckets = max(_LEAST_BUCKETS, _BUCKETS // len(comparison.layout.blocks))
    each = comparison.request.each
    return tuple(course for run in runs for course in load_courses(ask, run, facts, buckets=buckets, each=each))


def _matrix(ask: Ask, comparison: Comparison) -> Matrix:
    """Return the usual metrics of all runs of the sides, also where only one side ran something."""
    present = comparison.facts.columns.by_metric
    primary = comparison.figures.primary.name
    # What lacks the metric that others are compared by has its duration.
    lacking = any(all(row.metric.name != primary for row in block.rows) for block in comparison.figures.blocks)
    costs = [cost.metric.name for cost in map(cost_row, comparison.figures.blocks) if cost]
    wanted = dict.fromkeys((primary, *costs, *USUAL_METRICS, *(["run_seconds"] if lacking else [])))
    names = [name for name in wanted if name in present]
    request = replace(comparison.request, values=comparison.layout.sides)
    return tabulate(ask, request, names, "workload", known=comparison)


def _try(make: Callable[[], Found]) -> Found | Missing:
    try:
        return make()
    except GpuAgentError as error:
        return Missing(reason=str(error))


def _profiles(ask: Ask, comparison: Comparison) -> tuple[tuple[profile.Study, ...], ...]:
    """Return of each block the baseline beside each other side that has a trace, or the only side that has one."""
    traced = traced_runs(ask)
    facts, primary, each = comparison.facts, comparison.figures.primary.name, comparison.request.each
    blocks = comparison.layout.blocks[:MOST_BLOCKS]
    found = []
    for block in blocks:
        sides = []
        for cell in block.cells:
            runs = [run for run in cell.runs if run.run_id in traced]
            if runs:
                sides.append(profile.Side(name=cell.side, run=median_run(runs, facts, primary), runs=len(runs)))
        pairs = [[sides[0], other] for other in sides[1:MOST_SIDES]] or [sides[:1]]
        found.append(tuple(profile.study_sides(ask, pair, facts, each) for pair in pairs if pair))
    if not any(found):
        raise GpuAgentError(f"no run of {blocks[0].workload} has a trace: {profile.how_to_trace(blocks[0].runs)}")
    return tuple(found)


def _serving(ask: Ask, comparison: Comparison) -> serving_curves.Study | None:
    """Return the servers' curves; None: no run measured a server by levels of load."""
    if not comparison.facts.has(comparison.layout.runs, serving_curves.MEASURE):
        return None
    found = _try(
        lambda: serving_curves.study_serving(ask, comparison.request, percent=None, milliseconds={}, known=comparison)
    )
    return None if isinstance(found, Missing) else found
