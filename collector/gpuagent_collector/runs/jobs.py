"""Jobs that agents saw at work, whoever launched them: what the store has of each, over all its nodes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gpuagent_collector.query.ask import Ask, literal
from gpuagent_collector.query.condition import parenthesised

# Lists go so far back by default: those of years take seconds.
A_MONTH = timedelta(days=30)

# What an agent recorded of one owner or one of its GPUs counts once: the last word, and the highest counts. After a
# restart the next agent counts on from 0, but for CPU time, which the group has. Two agents that watched at the same
# time, such as a job's own and the node's, saw the same; the one that watched longer counts. The last state of a job
# that runs for days may be days old: the last hour's samples say that it runs, and what it has used since.
_COUNTED = """
WITH newest AS (
    SELECT max(time) AS time FROM (SELECT max(time) AS time FROM owners UNION ALL SELECT max(time) FROM owner_samples)
), chosen AS (
    {chosen}
), recorded AS (
    SELECT * FROM owners WHERE {of_time} AND owner_id IN (FROM chosen)
    UNION ALL BY NAME
    SELECT * EXCLUDE (memory_used_bytes, gpu_memory_used_bytes, sm_percent) FROM owner_samples
    WHERE time >= (SELECT time FROM newest) - INTERVAL 1 HOUR AND owner_id IN (FROM chosen)
), named AS (
    -- Who each owner is; what is counted of it and of each of its GPUs does without these texts.
    SELECT
        owner_id, any_value(kind) AS kind, arg_max(job, time) AS job, any_value(number) AS number,
        arg_max(title, time) AS title, arg_max(user_name, time) AS user_name, arg_max(account, time) AS account,
        arg_max(place, time) AS place, arg_max(command, time) AS command, max(held_cores) AS held_cores,
        max(memory_held_bytes) AS memory_held_bytes, min(started_at) AS started_at
    FROM owners WHERE {of_time} AND owner_id IN (FROM chosen) AND device_id IS NULL GROUP BY owner_id
), seen AS (
    SELECT
        session_id, node_id, owner_id, device_id, max(time) AS seen_at, max(ended_at) AS ended_at,
        max(observed_seconds) + epoch(max(time) - max(time) FILTER (observed_seconds IS NOT NULL)) AS observed_seconds,
        max(cpu_seconds) AS cpu_seconds, max(memory_max_bytes) AS memory_max_bytes, max(is_held) AS is_held,
        max(gpu_memory_max_bytes) AS gpu_memory_max_bytes, max(gpu_seconds) AS gpu_seconds,
        -- NULL says that the GPU was shared.
        arg_max_null(energy_joules, time) AS energy_joules, max(idle_seconds) AS idle_seconds,
        arg_max(idle_now_seconds, time) AS idle_now_seconds
    FROM recorded GROUP BY session_id, node_id, owner_id, device_id HAVING max(observed_seconds) IS NOT NULL
), counted AS (
    SELECT
        node_id, owner_id, device_id, arg_max(session_id, seen_at) AS session_id, max(seen_at) AS seen_at,
        -- Between two steps a job without a group of its own has no process.
        CASE WHEN max(ended_at) >= max(seen_at) - INTERVAL 1 SECOND THEN max(ended_at) END AS ended_at,
        sum(observed_seconds) AS observed_seconds, max(cpu_seconds) AS cpu_seconds,
        max(memory_max_bytes) AS memory_max_bytes, max(is_held) AS is_held,
        max(gpu_memory_max_bytes) AS gpu_memory_max_bytes, sum(gpu_seconds) AS gpu_seconds,
        CASE WHEN bool_and(energy_joules IS NOT NULL) THEN sum(energy_joules) END AS energy_joules,
        sum(idle_seconds) AS idle_seconds, arg_max(idle_now_seconds, seen_at) AS idle_now_seconds
    FROM seen AS one
    WHERE NOT EXISTS (
        FROM seen AS other
        WHERE other.node_id = one.node_id AND other.owner_id = one.owner_id
            AND other.device_id IS NOT DISTINCT FROM one.device_id
            AND (other.observed_seconds, other.session_id) > (one.observed_seconds, one.session_id)
            AND other.seen_at - to_seconds(other.observed_seconds) < one.seen_at
            AND one.seen_at - to_seconds(one.observed_seconds) < other.seen_at
    )
    GROUP BY node_id, owner_id, device_id
), parts AS (
    SELECT
        counted.*, named.* EXCLUDE (owner_id),
        session.hostname, session.platform, session.instance_type, session.cpu_threads,
        coalesce(counted.ended_at, counted.seen_at) AS last_at,
        counted.ended_at IS NULL AND counted.seen_at >= now()::TIMESTAMP - INTERVAL 2 MINUTE
            AND counted.session_id NOT IN (SELECT session_id FROM session_ends) AS is_running,
        -- The job of Slurm may be on several nodes; of everything else each node has its own.
        CASE WHEN kind <> 'slurm' THEN counted.node_id END AS only_node
    FROM counted JOIN named USING (owner_id) LEFT JOIN sessions AS session USING (session_id)
)
"""

_JOBS = """
, jobs AS MATERIALIZED (
SELECT
    kind, job, any_value(number) AS number, any_value(title) AS title, user_name, any_value(account) AS account,
    any_value(place) AS place, platform, {details}
    list_sort(list(DISTINCT hostname)[1:8])[1:4] AS nodes, count(DISTINCT node_id) AS node_count,
    only_node, min(started_at) AS started_at, bool_or(is_running) AS is_running,
    -- Neither the end of its last life was reported nor anything since.
    NOT bool_or(is_running) AND coalesce(max(seen_at) FILTER (ended_at IS NULL) >= max(started_at), false) AS is_lost,
    max(last_at) AS last_at, epoch(max(last_at) - min(started_at)) AS seconds,
    count(DISTINCT device_id) FILTER (is_held = 1) AS gpus_held, count(DISTINCT device_id) AS gpus_seen,
    max(is_held) FILTER (device_id IS NULL) AS is_holder,
    CASE WHEN count(device_id) = count(device_id) FILTER (gpu_seconds IS NOT NULL)
        THEN count(DISTINCT device_id) FILTER (gpu_seconds > 0) END AS gpus_used,
    sum(observed_seconds) FILTER (device_id IS NOT NULL AND coalesce(is_held, 1) = 1) AS held_gpu_seconds,
    CASE WHEN count(gpu_seconds) = count(device_id)
        THEN sum(gpu_seconds) FILTER (coalesce(is_held, 1) = 1) END AS gpu_seconds,
    max(gpu_memory_max_bytes) AS gpu_memory_max_bytes,
    sum(idle_seconds) AS idle_gpu_seconds, count(*) FILTER (is_running AND idle_now_seconds > 0) AS gpus_idle_now,
    max(idle_now_seconds) FILTER (is_running) AS idle_now_seconds,
    CASE WHEN count(device_id) > 0 AND count(energy_joules) = count(device_id) THEN sum(energy_joules) END
        AS energy_joules,
    sum(cpu_seconds) AS cpu_seconds, max(memory_max_bytes) AS memory_max_bytes,
    max(memory_held_bytes) FILTER (device_id IS NULL) AS memory_held_bytes,
    sum(held_cores) FILTER (device_id IS NULL) AS held_cores,
    sum(held_cores * observed_seconds) FILTER (device_id IS NULL) AS held_core_seconds,
    sum(observed_seconds) FILTER (device_id IS NULL) AS node_seconds
FROM parts WHERE {condition}
GROUP BY kind, job, user_name, platform, only_node HAVING {having}
), together AS (
    SELECT
        count(*) AS all_jobs, count(DISTINCT user_name) AS all_users, count(*) FILTER (is_running) AS all_running,
        count(*) FILTER (is_lost) AS all_lost,
        sum(held_gpu_seconds) AS all_held_seconds, sum(idle_gpu_seconds) AS all_idle_seconds,
        sum(gpu_seconds) / sum(held_gpu_seconds) FILTER (gpu_seconds IS NOT NULL) AS all_busy,
        sum(gpus_idle_now) AS all_idle_now
    FROM jobs
)
SELECT jobs.*, together.* FROM jobs, together WHERE {where} ORDER BY is_running DESC, started_at DESC, job LIMIT {limit}
"""

# A viewer's lists have an end; larger jobs are rare, and their first agents and GPUs name their kinds as well.
_AGENTS = """
    list_sort(list(DISTINCT session_id)[1:64]) AS session_ids,
    list_sort(list(DISTINCT CASE WHEN coalesce(is_held, 1) = 1 THEN device_id END)[1:64]) AS device_ids,"""
_COMMAND = "any_value(command) AS command,"

_NAMED = "(SELECT owner_id FROM owners LEFT JOIN sessions USING (session_id) WHERE {condition})"
_SINCE = """(
    SELECT owner_id FROM owners WHERE time >= {since}
    UNION
    SELECT owner_id FROM owner_samples WHERE time >= {since} AND time >= (SELECT time FROM newest) - INTERVAL 1 HOUR
)"""

# From when on jobs are wanted, and when the first of those that were seen since then began: files are in the order of
# time, so that what is older is not read. Clocks may differ by an hour.
_BEGIN = """
WITH newest AS (
    SELECT max(time) AS time FROM (SELECT max(time) AS time FROM owners UNION ALL SELECT max(time) FROM owner_samples)
), wanted AS (
    SELECT time AS newest, time - to_seconds({seconds}) AS since FROM newest
)
SELECT CAST(any_value(since) AS VARCHAR) AS since, CAST(min(started_at) - INTERVAL 1 HOUR AS VARCHAR) AS first
FROM owners, wanted
WHERE time >= since OR owner_id IN (
    SELECT owner_id FROM owner_samples, wanted WHERE time >= since AND time >= newest - INTERVAL 1 HOUR
)
"""

_PARTS = "SELECT * FROM parts ORDER BY hostname, device_id NULLS FIRST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The jobs to take; None: all.

    Attributes:
        since: counts from the newest record of the store.
        job: what people call one job; jobs: the same of several, in full.
        name: the name of jobs; of those without one, what they are called.
        where: an SQL condition on the columns of a job.
        with_command: whether the command of each job is read too.
        with_agents: whether its agents and its GPUs are.
    """

    user: str | None = None
    project: str | None = None
    since: timedelta | None = None
    job: str | None = None
    jobs: Sequence[str] | None = None
    name: str | None = None
    where: str | None = None
    only_idle: bool = False
    only_ended: bool = False
    with_command: bool = False
    with_agents: bool = False
    limit: int = 100


def read_jobs(ask: Ask, chosen: Chosen) -> list[dict[str, Any]]:
    """Return what the store has of each job, those that run first, then the newest first."""
    named = {"user_name": chosen.user, "account": chosen.project, "coalesce(title, job)": chosen.name}
    # As literals: where pandas is installed, DuckDB imports it for a parameter, which takes longer than the answer.
    conditions = [f"{column} = {literal(value)}" for column, value in named.items() if value is not None]
    if chosen.job is not None:
        conditions.append(_called(chosen.job))
    if chosen.jobs is not None:
        names = "(SELECT unnest(CAST(? AS VARCHAR[])))"
        conditions.append(f"(job IN {names} OR hostname || '/' || job IN {names})")
    condition = " AND ".join(conditions) or "true"
    # An owner that was ever called so is read; what it was called last decides.
    owners = [_NAMED.format(condition=condition)] if conditions else []
    of_time = "true"
    if chosen.since is not None:
        (begin,) = ask(_BEGIN.format(seconds=chosen.since.total_seconds()))
        if begin["first"] is None:
            return []
        owners.append(_SINCE.format(since=f"TIMESTAMP {literal(begin['since'])}"))
        of_time = f"time >= TIMESTAMP {literal(begin['first'])}"
    counted = _COUNTED.format(chosen=" INTERSECT ".join(owners) or "SELECT owner_id FROM owners", of_time=of_time)
    where = ["NOT is_running AND NOT is_lost"] if chosen.only_ended else []
    where += [parenthesised(chosen.where)] if chosen.where else []
    jobs = _JOBS.format(
        condition=condition,
        having="sum(idle_seconds) > 0" if chosen.only_idle else "true",
        where=" AND ".join(where) or "true",
        limit=chosen.limit,
        details=f"{_COMMAND if chosen.with_command else ''}{_AGENTS if chosen.with_agents else ''}",
    )
    rows = ask(counted + jobs, [] if chosen.jobs is None else [list(chosen.jobs)] * 4)
    return [{**row, "nodes": sorted(filter(None, row["nodes"]))} for row in rows]


def is_known(ask: Ask, name: str) -> bool:
    """Return whether a job is called so, or has this name."""
    condition = f"{_called(name)} OR title = {literal(name)}"
    return bool(ask(f"SELECT 1 FROM owners LEFT JOIN sessions USING (session_id) WHERE {condition} LIMIT 1"))  # noqa: S608


def _called(name: str) -> str:
    """Return the SQL condition that a job is called so."""
    text = literal(name)
    # The whole ID of a container has 64 characters, the short one 12, and lists show 23.
    container = f"length(job) = 64 AND length({text}) >= 12 AND starts_with(job, {text})"
    return f"({text} IN (job, number, hostname || '/' || job) OR {container})"


def read_parts(ask: Ask, rows: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return for each job what its nodes have of it, and their GPUs."""
    chosen = "SELECT owner_id FROM owners WHERE job IN (SELECT unnest(CAST(? AS VARCHAR[])))"
    names = sorted({row["job"] for row in rows})
    parts: dict[tuple[object, ...], list[dict[str, Any]]] = defaultdict(list)
    for part in ask(_COUNTED.format(chosen=chosen, of_time="true") + _PARTS, [names]):
        parts[_identity(part)].append(part)
    return [parts[_identity(row)] for row in rows]


def _identity(row: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("kind", "job", "user_name", "platform", "only_node"))
