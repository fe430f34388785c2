"""`collector jobs` and `collector idle`: the jobs on all nodes, and those that hold idle GPUs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gpuagent_collector.present.answer import Answer, Legend
from gpuagent_collector.present.human import significant
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.words import write_command
from gpuagent_common.text import counted

_HOUR_SECONDS = 3600.0
# A terminal of this width folds long names: further tables would not fit below.
USUAL_COLUMNS = 80
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
    SELECT * FROM owners WHERE owner_id IN (FROM chosen)
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
    FROM owners WHERE owner_id IN (FROM chosen) AND device_id IS NULL GROUP BY owner_id
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
    any_value(place) AS place, platform, any_value(command) AS command,
    list(DISTINCT hostname)[1:4] AS nodes,
    count(DISTINCT node_id) AS node_count,
    only_node, min(started_at) AS started_at, bool_or(is_running) AS is_running,
    -- Neither the end of its last life was reported nor anything since.
    NOT bool_or(is_running) AND coalesce(max(seen_at) FILTER (ended_at IS NULL) >= max(started_at), false) AS is_lost,
    max(last_at) AS last_at, epoch(max(last_at) - min(started_at)) AS seconds,
    count(DISTINCT device_id) FILTER (is_held = 1) AS gpus_held,
    count(DISTINCT device_id) AS gpus_seen, max(is_held) FILTER (device_id IS NULL) AS is_holder,
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
SELECT jobs.*, together.* FROM jobs, together ORDER BY is_running DESC, started_at DESC, job LIMIT {limit}
"""

_NAMED = "(SELECT owner_id FROM owners LEFT JOIN sessions USING (session_id) WHERE {condition})"
_SINCE = """(
    SELECT owner_id FROM owners WHERE time >= (SELECT time FROM newest) - to_seconds(CAST(? AS DOUBLE))
    UNION
    SELECT owner_id FROM owner_samples WHERE time >= (SELECT time FROM newest) - to_seconds(CAST(? AS DOUBLE))
)"""

_PARTS = "SELECT * FROM parts ORDER BY hostname, device_id NULLS FIRST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, pod, container, unit or user, over all its nodes; `row` is what the store has of it."""

    row: Mapping[str, Any]
    cost: float | None = None
    currency: str | None = None

    @property
    def state(self) -> str:
        """Return whether it runs; lost, as a run is: its agent reports nothing more, so that its end is unknown."""
        if self.row["is_running"]:
            return "running"
        return "lost" if self.row["is_lost"] else "ended"

    @property
    def gpus(self) -> int | None:
        """Return the GPUs that it holds, where this is unknown those it was seen on; None: nothing is known."""
        return self.row["gpus_held"] or self.row["gpus_seen"] or (0 if self.row["is_holder"] == 0 else None)

    @property
    def gpu_percent(self) -> float | None:
        """Return the share of its GPUs' time in which kernels ran."""
        return share(self.row["gpu_seconds"], self.row["held_gpu_seconds"])

    @property
    def cpu_percent(self) -> float | None:
        """Return the share of the time of its CPUs that it used."""
        return share(self.row["cpu_seconds"], self.row["held_core_seconds"])

    @property
    def idle_gpu_hours(self) -> float | None:
        """Return the hours in which its GPUs were held and idle."""
        idle = self.row["idle_gpu_seconds"]
        return None if idle is None else idle / _HOUR_SECONDS

    @property
    def idle_cost(self) -> float | None:
        """Return the part of the cost that the idle time has."""
        idle, held = self.row["idle_gpu_seconds"], self.row["held_gpu_seconds"]
        return self.cost * idle / held if self.cost is not None and idle is not None and held else None


def share(part: float | None, whole: float | None) -> float | None:
    """Return a share in percent; None: one of both is unknown."""
    return 100 * part / whole if part is not None and whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The jobs to take; None: all. `since` counts from the newest record of the store."""

    user: str | None = None
    project: str | None = None
    since: timedelta | None = None
    job: str | None = None
    title: str | None = None
    only_idle: bool = False
    limit: int = 100


def find_jobs(ask: Ask, chosen: Chosen, prices: Prices | None) -> list[Job]:
    """Return the jobs, those that run first, then the newest first."""
    conditions: list[str] = []
    parameters: list[Any] = []
    named = {"user_name": chosen.user, "account": chosen.project, "title": chosen.title}
    for column, value in named.items():
        if value is not None:
            conditions.append(f"{column} = ?")
            parameters.append(value)
    if chosen.job is not None:
        # The whole ID of a container has 64 characters, the short one 12, and lists show 23.
        container = "length(job) = 64 AND length(?) >= 12 AND starts_with(job, ?)"
        conditions.append(f"(? IN (job, number, hostname || '/' || job) OR {container})")
        parameters += [chosen.job] * 3
    condition = " AND ".join(conditions) or "true"
    # An owner that was ever called so is read; what it was called last decides.
    owners = [_NAMED.format(condition=condition)] if conditions else []
    since: list[Any] = []
    if chosen.since is not None:
        owners.append(_SINCE)
        since = [chosen.since.total_seconds(), min(chosen.since.total_seconds(), _HOUR_SECONDS)]
    having = "sum(idle_seconds) > 0" if chosen.only_idle else "true"
    jobs = _JOBS.format(condition=condition, having=having, limit=chosen.limit)
    sql = _COUNTED.format(chosen=" INTERSECT ".join(owners) or "SELECT owner_id FROM owners") + jobs
    rows = ask(sql, [*parameters, *since, *parameters])
    rows = [{**row, "nodes": sorted(filter(None, row["nodes"]))} for row in rows]
    costs = _costs(ask, rows, prices) if prices and rows else [(None, None)] * len(rows)
    return [Job(row=row, cost=cost, currency=currency) for row, (cost, currency) in zip(rows, costs, strict=True)]


def find_parts(ask: Ask, rows: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return for each job what its nodes have of it, and their GPUs."""
    chosen = "SELECT owner_id FROM owners WHERE job IN (SELECT unnest(CAST(? AS VARCHAR[])))"
    names = sorted({row["job"] for row in rows})
    parts: dict[tuple[object, ...], list[dict[str, Any]]] = defaultdict(list)
    for part in ask(_COUNTED.format(chosen=chosen) + _PARTS, [names]):
        parts[_identity(part)].append(part)
    return [parts[_identity(row)] for row in rows]


def _identity(row: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("kind", "job", "user_name", "platform", "only_node"))


_NODE_GPUS = """
SELECT session_id, list(name)[1:64] AS names FROM session_devices WHERE parent_device_id IS NULL GROUP BY session_id
"""


def _costs(ask: Ask, rows: Sequence[Mapping[str, Any]], prices: Prices) -> Iterator[tuple[float | None, str | None]]:
    """Yield the cost of each job and its currency; None where a price is unknown."""
    gpus = {each["session_id"]: each["names"] for each in ask(_NODE_GPUS)}
    for parts in find_parts(ask, rows):
        owners: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for part in parts:
            owners[part["owner_id"]].append(part)
        nodes = [_node_cost(owner, gpus, prices) for owner in owners.values()]
        currencies = {currency for _, currency in nodes}
        amounts = [amount for amount, _ in nodes if amount is not None]
        if len(amounts) == len(nodes) and len(currencies) == 1:
            yield sum(amounts), currencies.pop()
        else:
            yield None, None


def _node_cost(
    parts: Sequence[Mapping[str, Any]], gpus: Mapping[int, Sequence[str]], prices: Prices
) -> tuple[float | None, str | None]:
    """Return the cost of an owner on its node.

    It pays the part of the node's GPUs that it held; without any, that of the CPUs; None: neither is known.
    """
    node = parts[0]
    names = gpus.get(node["session_id"], [])
    price = prices.of_node(node["platform"], names, node["instance_type"])
    if price is None or price.instance_hour is None:
        return None, None
    held = sum(1 for part in parts if part["device_id"] is not None and part["is_held"] != 0)
    cores, threads = node["held_cores"], node["cpu_threads"]
    if held and names:
        part = held / len(names)
    elif cores and threads and not (names and node["kind"] == "slurm" and node["is_held"] is None):
        part = min(1.0, cores / threads)
    else:
        return None, None
    hours = (node["last_at"] - node["started_at"]).total_seconds() / _HOUR_SECONDS
    return part * hours * price.instance_hour, price.currency


def answer_jobs(
    ask: Ask,
    *,
    user: str | None = None,
    project: str | None = None,
    since: timedelta = A_MONTH,
    limit: int = 100,
    prices: Prices | None = None,
) -> Answer:
    """Answer `collector jobs`."""
    return render(find_jobs(ask, Chosen(user=user, project=project, since=since, limit=limit), prices), since)


def money(jobs: Sequence[Job], value: str = "cost") -> str | None:
    """Return the sum of the known amounts with its currency; None: nothing is known, or in several currencies."""
    known = [job for job in jobs if getattr(job, value) is not None]
    currencies = {job.currency for job in known}
    if len(currencies) != 1:
        return None
    return f"{significant(sum(getattr(job, value) for job in known))} {currencies.pop()}"


def _first(job: Job) -> str | None:
    """Return the first node, and the number of the others."""
    nodes, others = job.row["nodes"], job.row["node_count"] - 1
    return f"{nodes[0]}{f' +{others}' if others else ''}" if nodes else None


def columns_of_jobs() -> tuple[Column, ...]:
    """Return the columns that all lists of jobs begin with."""
    return (
        Column("job", "job", "row.job", show=lambda text: text if len(text) <= 24 else f"{text[:23]}…", left=True),
        Column("kind", "kind", "row.kind", left=True, wide=True),
        Column("title", "name", "row.title", left=True),
        Column("user", "user", "row.user_name", left=True),
        Column("project", "project", "row.account", left=True, wide=True),
        Column("nodes", "on", "row.nodes", left=True, wide=True),
        Column(None, "on", _first, left=True, wide=False),
    )


def render(jobs: Sequence[Job], since: timedelta) -> Answer:
    """Return the list of the jobs seen in this time as an answer; CSV has a line for each job."""
    columns = (
        *columns_of_jobs(),
        Column("started_at", "since", "row.started_at", show="{:%m-%d %H:%M}".format, left=True),
        Column("seconds", "for", "row.seconds", show=short),
        Column("state", "state", left=True, wide=True),
        Column("gpus", "GPUs", "gpus"),
        Column("gpus_used", "used", lambda job: job.row["gpus_used"] if job.gpus else None),
        Column("gpu_percent", "GPU %"),
        Column("cpu_percent", "CPU %", wide=True),
        Column("memory_max_bytes", "memory", "row.memory_max_bytes", unit="bytes", wide=True),
        Column("energy_joules", "energy", "row.energy_joules", unit="joules", wide=True),
        Column("idle_gpu_hours", "idle GPU h", wide=True),
        Column("cost", "cost", wide=True),
        Column("currency"),
        *(
            Column(name, value=f"row.{name}")
            for name in ("number", "platform", "place", "node_count", "last_at", "cpu_seconds")
        ),
    )
    table = Table(columns, jobs, keys=1, fits=USUAL_COLUMNS, most=MOST_ROWS)
    return Answer(
        heading="Jobs",
        text=_sentence(jobs, since),
        parts=[table] * bool(jobs)
        + [
            Legend(
                "",
                "GPU % is the time in which kernels ran, of the time that the job's GPUs were watched. A dash means "
                "that it is unknown which GPUs a job has. Terminals of 120 columns or more, and all other formats, "
                "have more columns: CPU % is the CPU time, of that of the job's CPUs; energy is that of GPUs that "
                "nobody else used; cost is the node's price by the share of its GPUs that the job held, or without "
                "GPUs of its CPUs.",
            ),
        ],
        next=_next(jobs),
        more="all jobs, and what the columns are" if jobs else "",
        facts={"jobs": table},
        csv=[table],
    )


def _sentence(jobs: Sequence[Job], since: timedelta) -> str:
    if not jobs:
        return f"No such jobs were seen in {period(since)}. `gpuagent start` reports jobs, unless with --owners off."
    row = jobs[0].row
    all_jobs, users = counted(row["all_jobs"], "job"), counted(row["all_users"], "user")
    lost = f", {row['all_lost']} lost: their agents stopped reporting before any end" if row["all_lost"] else ""
    text = f"{all_jobs} of {users} in {period(since)}, {row['all_running']} running{lost}."
    if row["all_held_seconds"]:
        text += f" They held GPUs for {significant(row['all_held_seconds'] / _HOUR_SECONDS)} hours"
        busy = row["all_busy"]
        text += f", with kernels in {significant(100 * busy, 2)} % of the time." if busy is not None else "."
    if row["all_idle_seconds"]:
        text += f" For {significant(row['all_idle_seconds'] / _HOUR_SECONDS)} hours they were held and idle."
    if row["all_jobs"] > len(jobs):
        return f"{text} The newest {len(jobs)} are listed."
    paid = money(jobs)
    return f"{text} Cost: {paid}." if paid else text


def period(since: timedelta) -> str:
    """Return a time as `--since` takes it, in whole days or hours."""
    hours = round(since.total_seconds() / _HOUR_SECONDS)
    return counted(hours, "hour") if hours % 24 else counted(hours // 24, "day")


def _next(jobs: Sequence[Job]) -> str | None:
    if any(job.row["idle_gpu_seconds"] for job in jobs):
        return "collector idle"
    return command_of_job(jobs[0]) if jobs else None


def command_of_job(job: Job) -> str:
    """Return the command that shows a job."""
    return write_command("job", {}, sides=[job.row["job"]])


def short(seconds: float) -> str:
    """Return a duration in few characters, such as 1.9 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / _HOUR_SECONDS:.1f} h" if seconds >= _HOUR_SECONDS else f"{seconds / 60:.0f} min"


DEFINITION = "Idle: held for 15 minutes without a kernel; for 60 while the job's CPUs work and none of its GPUs does."
# More jobs than any first screen has, and fewer than a terminal should get.
_MOST_JOBS = 10_000


def answer_idle(
    ask: Ask,
    *,
    user: str | None = None,
    project: str | None = None,
    since: timedelta = A_MONTH,
    prices: Prices | None = None,
) -> Answer:
    """Answer `collector idle`."""
    chosen = Chosen(user=user, project=project, since=since, only_idle=True, limit=_MOST_JOBS)
    found = find_jobs(ask, chosen, prices)
    jobs = sorted(found, key=lambda job: (-job.row["gpus_idle_now"], -(job.idle_gpu_hours or 0)))
    columns = (
        *columns_of_jobs(),
        Column("gpus", "GPUs", "gpus"),
        Column("gpus_idle_now", "idle now", "row.gpus_idle_now"),
        Column("idle_now_seconds", "for", lambda job: job.row["idle_now_seconds"] or None, show=short),
        Column("idle_gpu_hours", "GPU hours idle"),
        Column("gpu_percent", "GPU %", wide=True),
        Column("idle_cost", "cost", wide=None if prices else True),
        Column("currency"),
        *(Column(name, value=f"row.{name}") for name in ("started_at", "last_at", "gpu_memory_max_bytes")),
    )
    table = Table(columns, jobs, keys=1, fits=USUAL_COLUMNS, most=MOST_ROWS)
    return Answer(
        heading="Held and idle",
        text=_idle_sentence(jobs, since),
        parts=[*([table] if jobs else []), Legend(DEFINITION, DEFINITION)],
        next=command_of_job(jobs[0]) if jobs else None,
        facts={"definition": DEFINITION, "jobs": table},
        csv=[table],
    )


def _idle_sentence(jobs: Sequence[Job], since: timedelta) -> str:
    time = period(since)
    if not jobs:
        return f"No GPU was seen held and idle in {time}."
    now = int(jobs[0].row["all_idle_now"])
    hours = significant(sum(job.idle_gpu_hours or 0 for job in jobs))
    verb = "is" if now == 1 else "are"
    all_jobs = counted(len(jobs), "job")
    text = f"{counted(now, 'GPU')} {verb} held and idle now; in {time}, {all_jobs} held GPUs idle for {hours} hours."
    lost = money(jobs, "idle_cost")
    return f"{text} Cost: {lost}." if lost else text
