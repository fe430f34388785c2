"""Bounds of a workload on each side: the figures of each limit, and in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from gpuagent_collector.answers.roofline_points import Trial, find_ceilings, load_trials, make_points
from gpuagent_collector.metrics.bounds import (
    CPU_PERCENT,
    LEAST_SAMPLED_SECONDS,
    TIME_PERCENT,
    UNIT_PERCENT,
    Bound,
    Limit,
    Surroundings,
    count_steps,
    find_bounds,
    find_traced,
)
from gpuagent_collector.present.human import significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Block, Layout, first_few
from gpuagent_collector.runs.data import Facts, Run, load_facts, load_runs
from gpuagent_collector.runs.facets import Facet
from gpuagent_collector.runs.find import ROOFS
from gpuagent_collector.runs.words import join_words, write_command

# Marks the bounds that are shown.
MARK = "●"

# Sampled once a second by GPM or DCGM, or by NVML, which averages over about as long.
_SAMPLED = frozenset({"tensor_active_percent", "fp32_active_percent", "dram_active_percent", "gpu_utilization_percent"})

# Limit → its name.
LIMITS = {
    Limit.LAUNCH: "launches",
    Limit.DATA: "data",
    Limit.HOST: "the host's CPU",
    Limit.COMPUTE: "computing",
    Limit.MEMORY: "device memory",
    Limit.COMMUNICATION: "communication",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """The known figures of each limit on one side of a block.

    Attributes:
        traced: its last run that has kernels or operators; None: there is none.
        short_seconds: its measured phase, where samples of its GPU are left out because this is too short; else None.
        step_seconds: likewise its step; None: unknown.
    """

    side: str
    bounds: tuple[Bound, ...]
    traced: str | None = None
    short_seconds: float | None = None
    step_seconds: float | None = None

    @property
    def idle_percent(self) -> float | None:
        """The share of time in which the GPU had no work, less known waits for data; None: unknown, or no GPU."""
        launch = self._find(Limit.LAUNCH)
        return launch.idle_percent if launch.percent is None else launch.percent

    @property
    def busy_percent(self) -> float | None:
        """The share of time in which the GPU had work; None: unknown, or no GPU."""
        waits = self._find(Limit.DATA).percent or 0.0
        return None if self.idle_percent is None else 100 - self.idle_percent - waits

    @property
    def is_data_known(self) -> bool:
        """Return whether waits for data are known."""
        return any(bound.limit is Limit.DATA and bound.percent is not None for bound in self.bounds)

    @property
    def are_units_known(self) -> bool:
        """Return whether the use of the device's arithmetic and of its memory is known."""
        return all(self._find(unit).percent is not None for unit in (Limit.COMPUTE, Limit.MEMORY))

    def _find(self, limit: Limit) -> Bound:
        return next(bound for bound in self.bounds if bound.limit is limit)

    @property
    def shown(self) -> tuple[Bound, ...]:
        """The bounds that are shown."""
        return tuple(bound for bound in self.bounds if bound.is_shown)


def find_reasons(ask: Ask, facet: Facet, blocks: Sequence[Block], facts: Facts) -> list[tuple[Reasons, ...]]:
    """Return the bounds of each side that has runs, block by block."""
    measured = [run for run in load_runs(ask, facet, workload=ROOFS, experiment=None) if run.status == "succeeded"]
    ceilings = load_trials(ask, measured, load_facts(ask, [run.run_id for run in measured])) if measured else []
    # Without measured roofs no run has a share of them.
    runs = [run for block in blocks for run in block.runs] if ceilings else []
    trials = {trial.run.run_id: trial for trial in load_trials(ask, runs, facts)}
    found = []
    for block in blocks:
        reasons = []
        for cell in (cell for cell in block.cells if cell.runs):
            of_cell = [trials[run.run_id] for run in cell.runs if run.run_id in trials]
            compute, memory = _roof_percents(of_cell, ceilings)
            surroundings = Surroundings(
                cpu_limit_cores=_find_cores(cell.runs, facts),
                compute_roof_percent=compute,
                memory_roof_percent=memory,
            )
            metrics, short_seconds = facts.medians(cell.runs), None
            seconds = metrics.get("measure_seconds", LEAST_SAMPLED_SECONDS)
            if seconds < LEAST_SAMPLED_SECONDS and not _SAMPLED.isdisjoint(metrics):
                metrics = {name: value for name, value in metrics.items() if name not in _SAMPLED}
                metrics |= _load_busy(ask, cell.runs, facts)
                short_seconds = seconds
            bounds = find_bounds(metrics, surroundings)
            traced = find_traced({run.run_id: facts.metrics.get(run.run_id, {}) for run in cell.runs})
            reasons.append(
                Reasons(
                    side=cell.side,
                    bounds=bounds,
                    traced=traced,
                    short_seconds=short_seconds,
                    step_seconds=metrics.get("step_seconds"),
                )
            )
        found.append(tuple(reasons))
    return found


def _find_cores(runs: Sequence[Run], facts: Facts) -> float | None:
    """Return the cores that a run may use on all its nodes; None: unknown, or not the same for all runs."""
    cores: set[float | None] = set()
    for run in runs:
        sessions = facts.sessions.get(run.run_id, [])
        by_node = {each["node_id"]: each["cpu_limit_cores"] or each["cpu_threads"] for each in sessions}
        cores.add(sum(by_node.values()) if by_node and None not in by_node.values() else None)
    return cores.pop() if len(cores) == 1 else None


_OPERATORS = """
SELECT run_id, avg(seconds) AS seconds
FROM (
    SELECT run_id, rank, sum(gpu_self_seconds / steps) AS seconds FROM op_times
    WHERE kind = 'operator' AND steps > 0 AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
    GROUP BY ALL
)
WHERE seconds > 0 GROUP BY ALL"""


def _load_busy(ask: Ask, runs: Sequence[Run], facts: Facts) -> dict[str, float]:
    """Return the share of a step in which the GPU had work by the operators that the runs reported, as a metric."""
    seconds = {row["run_id"]: row["seconds"] for row in ask(_OPERATORS, [[run.run_id for run in runs]])}
    steps = {run_id: facts.metrics[run_id].get("step_seconds") for run_id in seconds}
    shares = [min(1.0, seconds[run_id] / step) for run_id, step in steps.items() if step]
    return {"gpu_utilization_percent": 100 * median(shares)} if shares else {}


def _roof_percents(trials: Sequence[Trial], ceilings: Iterable[Trial]) -> tuple[float | None, float | None]:
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


def why(reasons: Sequence[Reasons], layout: Layout, *, brief: bool = False) -> list[str]:
    """Return the bottleneck on each side, of the GPU at least whether it works or waits, and where neither is known.

    Unless it is `brief` it ends with the command that shows more.
    """
    # Commands of a sweep are named by their values, as in the table.
    facet, (options, values_of) = layout.facet, layout.options
    shown, silent, waiting, busy, traced = [], [], [], [], []
    for one in reasons:
        where = f"with {values_of[one.side]}" if options else facet.where(one.side)
        bounds = [
            f"{LIMITS[each.limit]}{'' if each.percent is None else f' ({significant(each.percent)} %)'}"
            for each in one.shown
        ]
        if bounds:
            shown.append(f"{join_words(bounds)} {where}")
            continue
        if one.idle_percent is not None and one.idle_percent >= TIME_PERCENT:
            waiting.append(f"{significant(one.idle_percent)} % {where}".rstrip())
        elif one.busy_percent is not None and one.are_units_known:
            busy.append(f"{significant(one.busy_percent)} % {where}".rstrip())
        else:
            silent.append(one)
            continue
        traced += [one.traced] if one.traced else []
    said = [f"The bottleneck is {join_words(shown)}."] if shown else []
    if waiting:
        # Samples do not show for what: the program may copy, save or compute on the CPU.
        has_waits = any(one.is_data_known for one in reasons)
        lead = "Apart from known waits for data the GPU" if has_waits else "The GPU"
        said.append(f"{lead} waits for its host ({first_few(waiting)}).")
    if busy:
        least = significant(UNIT_PERCENT, 2)
        said.append(f"The GPU is busy ({first_few(busy)}), though computing and memory are below {least} %.")
    if (waiting or busy) and not brief:
        # Two runs are compared.
        shows = f"`{write_command('profile', {}, *traced[:2])}` shows" if traced else "A profiler's trace would show"
        said.append(f"{shows} kernels and operators{'' if traced else ' (docs/your-program.md)'}.")
    short = [one for one in silent if one.short_seconds is not None]
    others = [one for one in silent if one.short_seconds is None]
    if others:
        where = f" {facet.preposition} {_name(others, layout)}" if said else ""
        said.append(f"The bottleneck could not be determined{where}.")
    if short:
        said.append(_say_brevity(short, _name(short, layout)))
    return said


def _name(sides: Sequence[Reasons], layout: Layout) -> str:
    """Return the name of an only side, else the number of them."""
    if sides[1:]:
        return f"{len(sides)} {layout.facet.plural}"
    return layout.options[1].get(sides[0].side) or layout.facet.name_side(sides[0].side)


def _say_brevity(short: Sequence[Reasons], names: str) -> str:
    """Return that sides measured for too short a time for samples of their GPU, and what would be enough."""
    seconds = [one.short_seconds for one in short if one.short_seconds is not None]
    lasts = " to ".join(dict.fromkeys(significant(end, 2) for end in (min(seconds), max(seconds))))
    needed = [count_steps(one.step_seconds) for one in short if one.step_seconds]
    enough = f"at least {max(needed):,} steps" if needed else f"for {LEAST_SAMPLED_SECONDS} s"
    return f"The bottleneck of {names} is unknown, measured for {lasts} s: run {enough}."


def bounds_table(reasons: Sequence[Reasons]) -> Table:
    """Return a row for each limit with its figure on each side."""

    def share(bound: Bound) -> str | None:
        if bound.percent is None:
            return None if bound.idle_percent is None else f"idle {significant(bound.idle_percent)} %"
        return f"{f'{MARK} ' if bound.is_shown else ''}{significant(bound.percent)} %"

    columns = [
        Column(None, "bound by", lambda row: LIMITS[row[0].limit], left=True),
        Column(None, "shown from", lambda row: f"{significant(row[0].threshold_percent, 2)} %"),
    ]
    columns += [Column(None, one.side, str(at), show=share) for at, one in enumerate(reasons)]
    return Table(columns, [list(row) for row in zip(*(one.bounds for one in reasons), strict=True)])


def bounds_legend() -> str:
    """Return the meaning of the figures, and the thresholds from which they show a bound."""
    third, cpu, unit = (significant(each, 2) for each in (TIME_PERCENT, CPU_PERCENT, UNIT_PERCENT))
    return (
        f"{MARK}: shown; {ABSENT}: not measured. Of a step's time ({third} %): launches, in which the GPU had no work "
        "and the host did not wait for data; data, in which it waited and the GPU had no work; communication that "
        "nothing hides. Idle: the GPU's time without work by samples, less known waits for data, for want of a trace; "
        f"of phases below {LEAST_SAMPLED_SECONDS} s by the operators that a program reported. "
        f"Of a unit ({unit} %): computing, the busiest pipes or FLOPs of the peak; device memory, its "
        f"bandwidth in use. The host's CPU ({cpu} %): the run's own use, of what it may use; if it uses a GPU, only "
        f"if that has no work for {third} %."
    )
