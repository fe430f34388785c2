"""Everything that a report shows: a comparison, and all other data of the same runs."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeVar

from gpuagent_collector.compare.comparison import Comparison, Request, compare
from gpuagent_collector.profile.data import traced_runs
from gpuagent_collector.profile.study import HOW_TO_TRACE, Chosen, study_chosen
from gpuagent_collector.profile.study import Study as Profile
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.literal import with_values
from gpuagent_collector.recommend.study import Reasons, find_reasons
from gpuagent_collector.roofline.study import Study as Roofline
from gpuagent_collector.roofline.study import study_runs as study_roofline
from gpuagent_collector.runs.cells import Block, Cell
from gpuagent_collector.runs.data import Facts, Record, Run
from gpuagent_collector.runs.find import find_runs, median_run
from gpuagent_collector.runs.series import Chart, Phase, load_phases, readings_of
from gpuagent_collector.scaling.study import Study as Scaling
from gpuagent_collector.scaling.study import study_runs as study_scaling
from gpuagent_common.errors import GpuAgentError

# Points of a curve at most: about one for each pixel that it has.
_BUCKETS = 500
_LEAST_BUCKET_SECONDS = 0.05
# A curve is interrupted where more buckets in a row are empty, for longer than so many samples take.
_BREAK_BUCKETS, _BREAK_DISTANCES = 12, 3

# Each is drawn as the mean over the run's nodes or GPUs.
CHARTS: tuple[Chart, ...] = (
    Chart(title="Node CPU", unit="percent", table="host_samples", column="cpu_percent"),
    Chart(title="Node memory used", unit="bytes", table="host_samples", column="memory_used_bytes"),
    Chart(title="GPU utilisation", unit="percent", table="gpu_samples", column="utilization_percent"),
    Chart(title="SMs active", unit="percent", table="gpu_samples", column="sm_active_percent"),
    Chart(title="Tensor pipes active", unit="percent", table="gpu_samples", column="tensor_active_percent"),
    Chart(title="Device memory bandwidth", unit="percent", table="gpu_samples", column="dram_active_percent"),
    Chart(title="GPU memory used", unit="bytes", table="gpu_samples", column="memory_used_bytes"),
    Chart(title="Power, each GPU", unit="watts", table="gpu_samples", column="power_watts"),
    Chart(title="GPU temperature", unit="celsius", table="gpu_samples", column="temperature_celsius"),
    Chart(title="SM clock", unit="megahertz", table="gpu_samples", column="sm_clock_mhz"),
)

# Table → whose samples it has.
_OWNERS = {"host_samples": "node_id", "gpu_samples": "device_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One bucket of a curve: the mean of what was read in it, the least and the most; seconds since the zero."""

    seconds: float
    mean: float
    low: float
    high: float


# Stretches without an interruption.
Curve = tuple[tuple[Reading, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One run over time. Zero is the start of its measure phase, or of the run where it reported none."""

    side: str
    run: Run
    phases: tuple[Phase, ...]
    curves: Mapping[Chart, Curve]


def load_course(ask: Ask, run: Run, facts: Facts) -> Course:
    """Read the samples of a run's own nodes and GPUs."""
    zero, phases = load_phases(ask, run)
    return Course(side=run.side or "", run=run, phases=phases, curves=_curves(ask, run, zero, facts))


def _curves(ask: Ask, run: Run, zero: datetime | None, facts: Facts) -> dict[Chart, Curve]:
    if run.started_at is None or run.ended_at is None or zero is None:
        return {}
    seconds = (run.ended_at - run.started_at).total_seconds()
    width = max(seconds / _BUCKETS, _LEAST_BUCKET_SECONDS)
    curves: dict[Chart, Curve] = {}
    for table, records in (("host_samples", facts.sessions), ("gpu_samples", facts.devices)):
        charts = [chart for chart in CHARTS if chart.table == table]
        keys = sorted({record[_OWNERS[table]] for record in records.get(run.run_id, [])})
        if keys:
            period: list[Parameter] = [str(zero), keys, str(run.started_at), str(run.ended_at)]
            columns = ", ".join(
                f"avg({name}) AS {name}, min({name}_low) AS {name}_low, max({name}_high) AS {name}_high"
                for name in (chart.column for chart in charts)
            )
            key = _OWNERS[table]
            rows = ask(
                _SAMPLES.format(columns=columns, readings=readings_of(table, key, charts), key=key, width=width), period
            )
            curves |= {chart: curve for chart in charts if (curve := _curve(rows, chart.column, width))}
    return curves


def _curve(rows: Iterable[Record], column: str, width: float) -> Curve:
    readings = [
        Reading(seconds=row["seconds"], mean=row[column], low=row[f"{column}_low"], high=row[f"{column}_high"])
        for row in rows
        if row[column] is not None
    ]
    return tuple(_stretches(readings, width))


def _stretches(readings: Sequence[Reading], width: float) -> Iterator[tuple[Reading, ...]]:
    """Yield the readings, divided where nothing was read for longer than their usual distance explains."""
    distances = sorted(after.seconds - before.seconds for before, after in pairwise(readings))
    usual = distances[len(distances) // 2] if distances else width
    longest = max(_BREAK_BUCKETS * width, _BREAK_DISTANCES * usual)
    stretch: list[Reading] = []
    for reading in readings:
        if stretch and reading.seconds - stretch[-1].seconds > longest:
            yield tuple(stretch)
            stretch = []
        stretch.append(reading)
    if stretch:
        yield tuple(stretch)


_SAMPLES = """
SELECT floor(epoch(time - CAST(? AS TIMESTAMP)) / {width}) * {width} AS seconds, {columns}
FROM {readings}
WHERE {key} IN (SELECT unnest(CAST(? AS BIGINT[])))
    AND time BETWEEN CAST(? AS TIMESTAMP) AND CAST(? AS TIMESTAMP)
GROUP BY seconds ORDER BY seconds"""


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
    return tuple(times for cell in block.cells if cell.runs for times in _read_step_times(ask, cell))


def _read_step_times(ask: Ask, cell: Cell) -> Iterator[StepTimes]:
    row = ask(_STEPS, [[run.run_id for run in cell.runs]])[0]
    if row["steps"]:
        seconds = (row["shortest"], *row["between"], row["longest"])
        yield StepTimes(side=cell.side, steps=row["steps"], seconds=seconds)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of the figures.

    Attributes:
        from_time, to_time: UTC; when the first run started and the last one ended; None: not known.
        run_ids: of each side, in the order in which they were queued.
        commands: (side, command as JSON) → how many runs started it.
        agents: versions of the agents that measured.
    """

    from_time: datetime | None
    to_time: datetime | None
    run_ids: Mapping[str, tuple[str, ...]]
    commands: Mapping[tuple[str, str], int]
    agents: tuple[str, ...]


def load_origin(ask: Ask, comparison: Comparison) -> Origin:
    """Return how the runs that are compared came about."""
    layout, sessions = comparison.layout, comparison.facts.sessions
    runs = [run for block in layout.blocks for cell in block.cells for run in cell.runs]
    command_of = {row["run_id"]: row["command"] for row in ask(_COMMANDS, [[run.run_id for run in runs]])}
    versions = {record["agent_version"] for run in runs for record in sessions.get(run.run_id, [])}
    return Origin(
        from_time=min((run.started_at for run in runs if run.started_at), default=None),
        to_time=max((run.ended_at for run in runs if run.ended_at), default=None),
        run_ids={side: tuple(run.run_id for run in runs if run.side == side) for side in layout.sides},
        commands=Counter(
            (run.side or "", command) for run in runs if (command := command_of.get(run.run_id)) not in (None, "[]")
        ),
        agents=tuple(sorted(filter(None, versions))),
    )


_COMMANDS = """
SELECT run_id, CAST(command AS VARCHAR) AS command FROM runs
WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""


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
    primary, facts = comparison.figures.primary.name, comparison.facts
    cells = [cell for cell in comparison.layout.blocks[0].cells if cell.runs][:MOST_SIDES]
    return Report(
        source=source,
        written_at=now,
        comparison=comparison,
        courses=tuple(
            load_course(recorder.about("Over time"), median_run(cell.runs, facts, primary), facts) for cell in cells
        ),
        step_times=tuple(
            load_step_times(recorder.about("Distributions"), block) for block in comparison.layout.blocks[:MOST_BLOCKS]
        ),
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
