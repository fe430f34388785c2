"""What a roofline reads from the store beside what comparisons read, and where each run took place."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Run

# Name → figure of a run, mean over its ranks; above 0.
Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run that succeeded, with what it reported.

    Attributes:
        device: name of the GPU, as each rank has one, or of the processor and its threads.
        device_ids: keys of its GPUs; empty: it used none that is known.
        node_ids: keys of its nodes.
        figures: results of the workload, `step_seconds` and `steps` of its measured steps.
        metrics: its figures, by metric.
        texts: its results that are texts.
        is_short: whether it says that it measured for less time than it should.
    """

    run: Run
    device: str
    device_ids: frozenset[int]
    node_ids: frozenset[int]
    figures: Figures
    metrics: Mapping[str, float]
    texts: Mapping[str, str]
    is_short: bool


def load_trials(ask: Ask, runs: Iterable[Run], facts: Facts) -> list[Trial]:
    """Return the runs with what they reported of their steps and of their devices' roofs."""
    runs = list(runs)
    chosen = [run.run_id for run in runs]
    figures: dict[str, dict[str, float]] = defaultdict(dict)
    for query in (_RESULTS, _STEPS):
        for row in ask(query, [chosen]):
            if isfinite(row["value"]) and row["value"] > 0:
                figures[row["run_id"]][row["name"]] = row["value"]
    return [_trial(run, facts, figures[run.run_id]) for run in runs]


def _trial(run: Run, facts: Facts, figures: Figures) -> Trial:
    sessions, devices = facts.sessions.get(run.run_id, []), facts.devices.get(run.run_id, [])
    texts = facts.texts.get(run.run_id, {})
    return Trial(
        run=run,
        device=_device(texts, sessions, devices),
        device_ids=frozenset(device["device_id"] for device in devices),
        node_ids=frozenset(session["node_id"] for session in sessions),
        figures=figures,
        metrics=facts.metrics.get(run.run_id, {}),
        texts=texts,
        is_short=run.run_id in facts.short,
    )


def _device(
    texts: Mapping[str, str], sessions: Iterable[Mapping[str, Any]], devices: Iterable[Mapping[str, Any]]
) -> str:
    """Return the device as the workload names it, else as NVML does; a processor is as good as its threads are many."""
    named = texts.get("device") or ", ".join(sorted({device["name"] or "unknown GPU" for device in devices}))
    if named and named != "cpu":
        return named
    processors = ", ".join(sorted({session["cpu_model"] or "unknown CPU" for session in sessions}))
    threads = texts.get("threads")
    return f"{processors or 'unknown CPU'}{f', {threads} threads' if threads else ''}"


_RESULTS = """
SELECT run_id, name, avg(value) AS value  -- over ranks, of what each reported last
FROM (
    SELECT run_id, rank, name, arg_max(value, time) AS value
    FROM results
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
        AND (ends_with(name, '_per_step') OR ends_with(name, '_per_second') OR name = 'quick')
    GROUP BY ALL
)
WHERE value IS NOT NULL
GROUP BY ALL"""

_STEPS = """
WITH of_ranks AS (
    -- Handing a step to a GPU takes another time than the step does.
    SELECT run_id, rank, avg(coalesce(gpu_seconds, wall_seconds)) AS seconds, count(*) AS steps
    FROM steps
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND phase = 'measure'
    GROUP BY ALL
)
SELECT run_id, 'step_seconds' AS name, avg(seconds) AS value FROM of_ranks WHERE seconds IS NOT NULL GROUP BY ALL
UNION ALL
SELECT run_id, 'steps', avg(steps) FROM of_ranks GROUP BY ALL"""
