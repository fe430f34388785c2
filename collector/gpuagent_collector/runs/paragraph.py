"""Runs in one paragraph: how they ended, their figures, and the command that shows more."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import median

from gpuagent_collector.metrics import ITEMS, METRICS, Metric
from gpuagent_collector.present.human import duration, notation, significant
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import identify_command
from gpuagent_collector.runs.cells import UNFINISHED, ended_in_queue
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.facets import can_name
from gpuagent_collector.runs.words import statuses, write_command
from gpuagent_common.text import counted

# Metric → how a sentence has its figure.
_LOADS = {
    "gpu_utilization_percent": "GPU busy {}",
    "gpu_memory_used_bytes": "GPU memory up to {}",
    "gpu_energy_run_joules": "GPU energy {}",
    "process_cpu_cores": "CPU {}",
}
_METRICS = {metric.name: metric for metric in METRICS}

# Steps are those of the measured phase, as the agent counts them: where times are known, one without is a gap.
_STEPS = """
SELECT run_id, coalesce(max(reported), max(counted)) AS steps, max(unmeasured) AS unmeasured
FROM (
    SELECT run_id, NULL AS reported,
           coalesce(
               nullif(count(coalesce(gpu_seconds, wall_seconds)) FILTER (phase = 'measure'), 0),
               nullif(count(*) FILTER (phase = 'measure'), 0)
           ) AS counted,
           count(*) AS unmeasured
    FROM steps
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND time >= CAST(? AS TIMESTAMP) GROUP BY run_id, rank
    UNION ALL
    SELECT run_id, value, NULL, NULL FROM results
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND name = 'steps'
)
GROUP BY run_id"""

# The source of steps that a program did not report by itself.
_FOUND = """
SELECT DISTINCT name FROM run_events
WHERE event = 'found' AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND time >= CAST(? AS TIMESTAMP)"""

# Programs that did not even start.
_SILENT = """
SELECT run_id FROM runs
WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND status = 'failed' AND exit_code IS NULL
    AND run_id NOT IN (SELECT run_id FROM run_events WHERE event = 'output')"""

# The first facet in which runs of the workload differ is the one to compare.
_FACETS = """
SELECT count(DISTINCT interference) > 1 AS interference, count(DISTINCT environment) > 1 AS environment,
       count(DISTINCT platform) > 1 AS platform, count(DISTINCT limits) > 1 AS limits,
       count(DISTINCT CAST(command AS VARCHAR)) > 1 AS command
FROM runs WHERE workload = ? AND status = 'succeeded'"""


def describe_runs(
    ask: Ask,
    runs: Sequence[Run],
    facts: Facts,
    others: Mapping[str, int] | None = None,
    *,
    is_ending_known: bool = False,
    experiment: str | None = None,
) -> str:
    """Return a paragraph on one run, or on several of a workload with medians over those that succeeded.

    The last line is the command to go on with, if there is one, within an `experiment` that is asked for. `others` are
    numbers of further runs by status. With `is_ending_known`, the paragraph on one run leaves out how it ended.
    """
    succeeded = [run for run in runs if run.status == "succeeded"]
    sentences = [] if is_ending_known and len(runs) == 1 else [_ending(runs, succeeded, Counter(others or {}))]
    figures = list(_figures(ask, succeeded or runs, facts))
    settings = len({(run.parameters, identify_command(run.command)) for run in succeeded})
    if settings > 1:
        sentences.append(f"They ran with {settings} settings.")
    elif figures and len({run.platform for run in succeeded}) <= 1:
        sentences.append(f"{'Medians: ' if len(succeeded) > 1 else ''}{', '.join(figures)}.")
    if (
        settings == 1
        and succeeded[0].command
        and not any(" step" in figure for figure in figures)
        and not facts.values(succeeded, "throughput")
    ):
        sentences.append("No steps were timed: --observe finds those of torch, --pattern those that are printed.")
    return "\n".join(filter(None, [" ".join(sentences), _next(ask, runs, experiment)]))


def _ending(runs: Sequence[Run], succeeded: Sequence[Run], others: Counter[str]) -> str:
    if len(runs) + others.total() > 1:
        counts = Counter(run.status or "unknown" for run in runs if run not in succeeded) + others
        ended = f", {statuses(counts)}" if counts else ""
        every = counted(len(succeeded) + counts.total(), "run")
        return f"{len(succeeded)} of {every} of {runs[0].workload} succeeded{ended}."
    (run,) = runs
    seconds = (run.ended_at - run.started_at).total_seconds() if run.ended_at and run.started_at else None
    after = "" if seconds is None else f" {'in' if succeeded else 'after'} {duration(seconds)}"
    reason = f": {run.reason.removesuffix('.')}" if run.reason else ""
    if ended_in_queue(run):
        return f"{run.run_id} was cancelled in the queue, before it started{reason}."
    return f"{run.run_id} {(run.status or 'queued').replace('_', ' ')}{after}{reason}."


def _figures(ask: Ask, runs: Sequence[Run], facts: Facts) -> Iterator[str]:
    def write(metric: Metric, unit: str | None = None) -> str | None:
        values = facts.values(runs, metric.name)
        return notation(values, unit or metric.unit).write(median(values)) if values else None

    if len(runs) > 1 and (seconds := facts.values(runs, "run_seconds")):
        yield f"run duration {duration(median(seconds))}"
    yield from _steps(ask, runs, write(_METRICS["step_seconds"]))
    units = {facts.units.get(run.run_id) or ITEMS for run in runs}
    if len(units) == 1 and (rate := write(_METRICS["throughput"], units.pop())):
        yield rate
    for name, words in _LOADS.items():
        figure = write(_METRICS[name])
        if figure:
            yield words.format(figure)
    for metric in facts.derived:
        if metric.name.startswith("cost_per_run") and (values := facts.values(runs, metric.name)):
            yield f"cost {significant(median(values))} {metric.unit}"


def _steps(ask: Ask, runs: Sequence[Run], each: str | None) -> Iterator[str]:
    # The time bounds what is read of a large table.
    started = min((run.started_at for run in runs if run.started_at), default=None)
    ids = [run.run_id for run in runs]
    rows = ask(_STEPS, [ids, started.isoformat(), ids]) if started else []
    measured, others = ([row[name] for row in rows if row[name] is not None] for name in ("steps", "unmeasured"))
    if not started or (not measured and not others):
        return
    names = sorted(row["name"] for row in ask(_FOUND, [ids, started.isoformat()]))
    source = f" ({' or '.join(names)})" if names else ""
    if measured:
        yield f"{counted(round(median(measured)), 'measured step')}{f' of {each}' if each else ''}{source}"
    else:
        yield f"{counted(round(median(others)), 'step')}, none after the warm-up{source}"


def _next(ask: Ask, runs: Sequence[Run], experiment: str | None) -> str:
    """Return where to look next, within an experiment that is given; empty: there is nothing to see."""
    failed = [run.run_id for run in runs if run.status not in ("succeeded", *UNFINISHED) and not ended_in_queue(run)]
    if all(map(ended_in_queue, runs)):
        return ""
    if failed:
        silent = {row["run_id"] for row in ask(_SILENT, [failed])}
        return next((f"Its output: collector logs {name}" for name in reversed(failed) if name not in silent), "")
    workload = runs[0].workload
    experiments = {run.experiment for run in runs}
    of_one = experiments.pop() if len(experiments) == 1 else None
    # Other sides may be in other experiments.
    for only in dict.fromkeys([of_one or experiment, experiment]):
        condition, values = ("", []) if only is None else (" AND experiment = ?", [only])
        (differs,) = ask(_FACETS + condition, [workload, *values])
        facet = next((name for name, does in differs.items() if does and (name != "command" or runs[0].command)), None)
        if facet:
            options = {"--workload": workload, "--by": facet, "--experiment": only}
            return f"Next: {write_command('compare', options)}"
    given = [json.loads(run.parameters) for run in runs]
    names = [name for name in dict.fromkeys(chain(*given)) if len({str(each.get(name)) for each in given}) > 1]
    if len(names) == 1 and can_name(names[0]):
        options = {"--workload": workload, "--by": f"parameter:{names[0]}", "--experiment": experiment}
        return f"Next: {write_command('compare', options)}"
    return f"Next: collector show {shlex.quote(runs[0].run_id if len(runs) == 1 else workload)}"
