"""The present state of nodes, GPUs and runs, read from the store."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuagent_collector.metrics.throttling import held_back_by
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.run_sessions import PRESENT_SQL
from gpuagent_collector.times import utc_now
from gpuagent_common.clocks import is_clock_wrong
from gpuagent_common.naming import WARM_UP
from gpuagent_common.quantities import QUANTITIES

# The clock of the process that holds the store: the client's may differ.
NOW = "now()::TIMESTAMP"

# Older samples are not shown: a node without younger ones is silent. Agents that were slowed send every 10 s.
RECENT_SECONDS = 30

# A range of times lets DuckDB skip all other parts of a table. It has an end because an agent whose clock is a day
# ahead would otherwise have all its samples read.
_RECENT = f"time BETWEEN {NOW} - INTERVAL {RECENT_SECONDS} SECOND AND {NOW} + INTERVAL {RECENT_SECONDS} SECOND"


def _columns_of(table: str) -> tuple[str, ...]:
    return tuple(each.column for each in QUANTITIES[table] if each.live or each.series)


# Figures of host_samples, gpu_samples and session_devices.
HOST_COLUMNS = _columns_of("host_samples")
GPU_COLUMNS = (*_columns_of("gpu_samples"), "throttle_reasons")
DEVICE_COLUMNS = ("memory_total_bytes", "power_limit_watts")


def _latest(columns: tuple[str, ...]) -> str:
    """Return SQL for each column's last reading: they come at different rates, and arg_max passes over NULL."""
    return ",\n        ".join(f"arg_max({column}, time) AS {column}" for column in columns)


# Each node that delivered in the last hour, as it was last sampled.
NODES_SQL = f"""
WITH {PRESENT_SQL}, recent AS (
    SELECT
        node_id, max(time) AS time,
        {_latest(HOST_COLUMNS)}
    FROM host_samples WHERE {_RECENT} AND session_id NOT IN (SELECT session_id FROM rivals) GROUP BY node_id
)
SELECT
    present.node_id, node_uuid, hostname, platform, cpu_threads,
    epoch({NOW} - recent.time) AS sample_age_seconds, epoch({NOW} - last_seen_at) AS heard_age_seconds,
    epoch({NOW} - ended_at) - coalesce(clock_offset_seconds, 0) AS ended_age_seconds, clock_offset_seconds,
    coalesce(same_identity, []) AS same_identity, recent.* EXCLUDE (node_id, time)
FROM present LEFT JOIN recent USING (node_id) LEFT JOIN twins USING (node_id)
WHERE last_seen_at > {NOW} - INTERVAL 1 HOUR
ORDER BY platform, hostname, node_id
""".strip()  # noqa: S608 - names of the schema

# Each GPU and MIG instance that its node has, as it was last sampled.
GPUS_SQL = f"""
WITH {PRESENT_SQL}, recent AS (
    SELECT
        node_id, device_id, max(time) AS time,
        {_latest(GPU_COLUMNS)}
    FROM gpu_samples WHERE {_RECENT} GROUP BY node_id, device_id
), known AS (
    FROM session_devices WHERE session_id IN (SELECT session_id FROM present)
    QUALIFY row_number() OVER (PARTITION BY session_id, device_id ORDER BY time DESC) = 1
)
SELECT
    known.node_id, known.device_id, known.parent_device_id, known.uuid,
    coalesce(board.device_index, known.device_index) AS device_index,  -- NVML counts a GPU's instances anew
    known.gpu_instance_id, known.name, {", ".join(f"known.{column}" for column in DEVICE_COLUMNS)},
    recent.* EXCLUDE (node_id, device_id, time)
FROM known
LEFT JOIN recent ON recent.node_id = known.node_id AND recent.device_id = known.device_id
LEFT JOIN known AS board ON board.session_id = known.session_id AND board.device_id = known.parent_device_id
ORDER BY known.node_id, device_index, known.gpu_instance_id NULLS FIRST, known.compute_instance_id
""".strip()  # noqa: S608 - names of the schema

# The same moment by the clock of a run's node.
_NODE_NOW = f"({NOW} - to_microseconds(CAST(1e6 * coalesce(offset_seconds, 0) AS BIGINT)))"

# The runs under way, then those that ended in the last hour, the newest first.
RUNS_SQL = f"""
WITH every AS MATERIALIZED (
    SELECT *, {{'workload': workload, 'command': CAST(command AS VARCHAR), 'platform': platform,
               'environment': environment, 'interference': interference, 'limits': limits}} AS kind
    FROM runs
), shown AS (
    FROM every WHERE status IN ('queued', 'running') OR ended_at > {NOW} - INTERVAL 1 HOUR
    ORDER BY ended_at DESC NULLS FIRST, status = 'queued', coalesce(started_at, queued_at) DESC LIMIT 500
), phases AS (
    SELECT run_id, arg_max(name, time) AS phase FROM run_events
    WHERE event = 'phase' AND run_id IN (SELECT run_id FROM shown) GROUP BY run_id
), usual AS (  -- the duration of earlier runs of the same command in the same circumstances
    SELECT kind, median(epoch(ended_at - started_at)) AS seconds FROM every
    WHERE status = 'succeeded' AND kind IN (SELECT kind FROM shown WHERE ended_at IS NULL) GROUP BY kind
), paces AS (
    SELECT run_id, max(step) + 1 AS steps, (max(step) - min(step)) / nullif(epoch(max(time) - min(time)), 0) AS pace
    FROM steps WHERE {_RECENT}
    GROUP BY run_id, rank, phase QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY max(time) DESC, rank) = 1
), ranks AS (
    SELECT run_id, sum(items) / sum(coalesce(gpu_seconds, wall_seconds)) AS items_per_second FROM steps
    WHERE {_RECENT} AND items IS NOT NULL AND coalesce(gpu_seconds, wall_seconds) > 0 GROUP BY run_id, rank
), rates AS (
    SELECT run_id, sum(items_per_second) AS live_rate FROM ranks GROUP BY run_id
), clocks AS (
    SELECT session_id, arg_max(offset_seconds, time) AS offset_seconds
    FROM clock_offsets WHERE session_id IN (SELECT session_id FROM shown) GROUP BY session_id
), stepping AS (  -- whose throughput is of steps
    SELECT DISTINCT run_id FROM results
    WHERE name = 'throughput' AND unit = 'steps/s' AND run_id IN (SELECT run_id FROM shown)
), throughputs AS (
    SELECT run_id, arg_max(value, computed_at) AS throughput FROM run_metrics
    WHERE metric = 'throughput' AND run_id IN (SELECT run_id FROM shown) GROUP BY run_id
)
SELECT
    run_id, workload, shown.platform, hostname, node_uuid, interference, repeat, exit_code, reason, phase,
    CASE WHEN status = 'succeeded' AND ends_with(experiment, '{WARM_UP}') THEN 'warm-up' ELSE status END AS status,
    epoch(coalesce(shown.ended_at, {_NODE_NOW}) - shown.started_at) AS elapsed_seconds,
    epoch({_NODE_NOW} - shown.ended_at) AS ended_age_seconds,
    CASE WHEN shown.ended_at IS NULL THEN live_rate
    WHEN stepping.run_id IS NULL THEN throughput END AS items_per_second,
    CASE WHEN shown.ended_at IS NULL THEN paces.steps END AS steps,
    CASE WHEN shown.ended_at IS NULL THEN pace
    WHEN stepping.run_id IS NOT NULL THEN throughput END AS steps_per_second,
    CASE WHEN shown.ended_at IS NULL AND usual.seconds > epoch({_NODE_NOW} - shown.started_at)
    THEN usual.seconds - epoch({_NODE_NOW} - shown.started_at) END AS left_seconds
FROM shown
LEFT JOIN sessions USING (session_id)
LEFT JOIN clocks USING (session_id)
LEFT JOIN phases USING (run_id)
LEFT JOIN rates USING (run_id)
LEFT JOIN paces USING (run_id)
LEFT JOIN usual USING (kind)
LEFT JOIN throughputs USING (run_id)
LEFT JOIN stepping USING (run_id)
ORDER BY shown.ended_at DESC NULLS FIRST, status = 'queued', coalesce(shown.started_at, queued_at) DESC, run_id
""".strip()  # noqa: S608 - names of the schema


# By column of the store, in its unit. A figure without a reading in the last 30 s is None.
Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNow:
    """A GPU or MIG instance.

    Attributes:
        figures: those of gpu_samples and session_devices.
        device_index: for an instance, the index of its GPU.
    """

    node_id: int
    device_id: int
    parent_device_id: int | None
    uuid: str | None
    device_index: int | None
    gpu_instance_id: int | None
    name: str | None
    figures: Figures

    @property
    def is_whole(self) -> bool:
        """True for a GPU, False for an instance of one."""
        return self.parent_device_id is None

    @property
    def place(self) -> str | None:
        """Its number in its node, as nvidia-smi counts: 0, or of a MIG instance 0.7."""
        numbers = [str(number) for number in (self.device_index, self.gpu_instance_id) if number is not None]
        return ".".join(numbers) or None

    @property
    def is_held_back(self) -> bool | None:
        """True if heat, power or hardware hold its clocks back; None: the GPU does not report it."""
        return None if self.throttle_reasons is None else held_back_by(self.throttle_reasons) is not None

    @property
    def throttle_reasons(self) -> int | None:
        """Why its clocks are held, as NVML's bits."""
        reasons = self.figures["throttle_reasons"]
        return None if reasons is None else int(reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNow:
    """A node that delivered in the last hour.

    Attributes:
        sample_age_seconds: since its last sample, by its own clock; None: it is silent or has left.
        heard_age_seconds: since its last commit, by the collector's clock.
        ended_age_seconds: since its newest agent process ended in good order; None: it runs, or went without a goodbye.
        clock_offset_seconds: the collector's clock less the node's.
        same_identity: hostnames of other machines that had its identity at the same time.
        gpus: the GPUs that its newest agent process found, by index, each before its MIG instances.
    """

    node_id: int
    node_uuid: str | None
    hostname: str | None
    platform: str | None
    cpu_threads: int | None
    sample_age_seconds: float | None
    heard_age_seconds: float
    ended_age_seconds: float | None
    clock_offset_seconds: float | None
    figures: Figures
    gpus: Sequence[GpuNow]
    same_identity: Sequence[str] = ()

    @property
    def is_silent(self) -> bool:
        """True if recent samples are missing though its agent did not end in good order."""
        return self.sample_age_seconds is None and self.ended_age_seconds is None

    @property
    def has_left(self) -> bool:
        """True if recent samples are missing because its agent ended in good order."""
        return self.sample_age_seconds is None and self.ended_age_seconds is not None

    @property
    def rivals(self) -> int:
        """The number of other machines with its identity."""
        return len(self.same_identity)

    @property
    def clock_is_wrong(self) -> bool:
        """True if its clock differs from the collector's by more than the tolerance."""
        return is_clock_wrong(self.clock_offset_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNow:
    """A run that is under way, or has ended in the last hour.

    Attributes:
        elapsed_seconds: since its program started, or how long it took; None: it has not started.
        ended_age_seconds: since it ended; None: it has not.
        items_per_second: while it runs, the rate of the steps of the last 30 s, summed over ranks; afterwards the
            run's throughput, None until the collector has computed it, and where it counts steps.
        steps, steps_per_second: while it runs, the number of steps in its phase, and the pace of the last 30 s;
            afterwards the throughput of a run that counts steps.
        left_seconds: while it runs, the rest of the median duration of earlier runs of the same command; None: no such
            run, or it takes longer than usual.
    """

    run_id: str
    workload: str | None
    platform: str | None
    hostname: str | None
    interference: str | None
    repeat: int | None
    status: str | None
    exit_code: int | None
    reason: str | None
    phase: str | None
    elapsed_seconds: float | None
    ended_age_seconds: float | None
    items_per_second: float | None
    steps: int | None = None
    steps_per_second: float | None = None
    left_seconds: float | None = None
    node_uuid: str | None = None

    @property
    def is_open(self) -> bool:
        """True while it is queued or running."""
        return self.ended_age_seconds is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of all nodes and runs at one moment, in UTC.

    `trouble` is why the collector cannot store what agents send; None: it can.
    """

    taken_at: datetime
    nodes: Sequence[NodeNow]
    runs: Sequence[RunNow]
    trouble: str | None = None


def take_snapshot(ask: Ask, trouble: Callable[[], str | None] = lambda: None) -> Snapshot:
    """Read the present state; `trouble` returns, after the answers, why the collector cannot store.

    Raises GpuAgentError: the store cannot be read.
    """
    gpus: dict[int, list[GpuNow]] = defaultdict(list)
    for row in ask(GPUS_SQL):
        gpus[row["node_id"]].append(GpuNow(**_gather(row, (*DEVICE_COLUMNS, *GPU_COLUMNS))))
    return Snapshot(
        taken_at=utc_now(),
        nodes=[NodeNow(**_gather(row, HOST_COLUMNS), gpus=gpus[row["node_id"]]) for row in ask(NODES_SQL)],
        runs=[RunNow(**row) for row in ask(RUNS_SQL)],
        trouble=trouble(),
    )


def _gather(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    others = {name: value for name, value in row.items() if name not in columns}
    return {**others, "figures": {column: row[column] for column in columns}}
