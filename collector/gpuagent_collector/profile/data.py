"""What a profile reads from the store: the operations that a run's profiler saw in a few of its steps."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.query.ask import Ask

# Name under which operations are added up that have no row of their own.
OTHERS = "(others)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """All calls of one name, in the mean over traced steps and ranks. Times are None where they do not apply.

    Attributes:
        kind: operator, kernel, memcpy or memset.
        name: in full.
        calls: a step.
        cpu_self_seconds: of an operator on the host, a step, without what it called.
        gpu_seconds: of a kernel, copy or set on the GPU, a step.
        gpu_self_seconds: on the GPU, a step, of what an operator launched itself.
    """

    kind: str
    name: str
    calls: float
    cpu_self_seconds: float | None
    gpu_seconds: float | None
    gpu_self_seconds: float | None


def traced_runs(ask: Ask) -> frozenset[str]:
    """Return the runs that have a trace."""
    return frozenset(row["run_id"] for row in ask("SELECT DISTINCT run_id FROM op_times"))


def why_not_traced(ask: Ask, run_id: str) -> str | None:
    """Return what the run itself says of why its trace failed; None: nothing."""
    rows = ask(_FAILURE, [run_id])
    return rows[0]["value_text"] if rows else None


def load_operations(ask: Ask, run_ids: Sequence[str]) -> Mapping[str, tuple[Operation, ...]]:
    """Return what the runs' profilers saw, by run."""
    steps = {row["run_id"]: row["steps"] for row in ask(_STEPS, [run_ids])}
    operations: dict[str, list[Operation]] = defaultdict(list)
    for row in ask(_OPERATIONS, [run_ids]):
        number = steps.get(row["run_id"])
        if number:
            operations[row["run_id"]].append(_operation(row, number))
    return {run_id: tuple(found) for run_id, found in operations.items()}


def load_step_seconds(ask: Ask, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    """Return how long the GPU was busy in a step of each run, and how long it was not, as result → mean over ranks."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in ask(_STEP_SECONDS, [run_ids]):
        found[row["run_id"]][row["name"]] = row["value"]
    return found


def _operation(row: Mapping[str, object], steps: float) -> Operation:
    def a_step(column: str) -> float | None:
        value = row[column]
        return None if value is None else float(str(value)) / steps

    return Operation(
        kind=str(row["kind"]),
        name=str(row["name"]),
        calls=a_step("calls") or 0.0,
        cpu_self_seconds=a_step("cpu_self_seconds"),
        gpu_seconds=a_step("gpu_seconds"),
        gpu_self_seconds=a_step("gpu_self_seconds"),
    )


_FAILURE = "SELECT value_text FROM results WHERE run_id = ? AND name = 'trace_failed' ORDER BY time DESC LIMIT 1"

_OPERATIONS = """
SELECT run_id, kind, name, CAST(sum(calls) AS DOUBLE) AS calls, sum(cpu_self_seconds) AS cpu_self_seconds,
       sum(gpu_seconds) AS gpu_seconds, sum(gpu_self_seconds) AS gpu_self_seconds
FROM op_times
WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND kind IS NOT NULL AND name IS NOT NULL
GROUP BY ALL"""

_STEPS = """
SELECT run_id, CAST(sum(steps) AS DOUBLE) AS steps  -- of all ranks, since what one rank never called has no row there
FROM (
    SELECT run_id, rank, max(steps) AS steps FROM op_times
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) GROUP BY ALL
)
GROUP BY run_id"""

_STEP_SECONDS = """
SELECT run_id, name, avg(value) AS value
FROM (
    SELECT run_id, rank, name, arg_max(value, time) AS value
    FROM results
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
        AND name IN ('gpu_busy_seconds_per_step', 'gpu_gap_seconds_per_step')
    GROUP BY ALL
)
WHERE value IS NOT NULL
GROUP BY ALL"""
