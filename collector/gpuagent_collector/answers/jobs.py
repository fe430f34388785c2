"""`collector jobs` and `collector idle`: the jobs on all nodes, and those that hold idle GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gpuagent_collector.present.answer import Answer, Legend
from gpuagent_collector.present.human import significant
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.prices.jobs import find_costs
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.jobs import A_MONTH, Chosen, read_jobs
from gpuagent_collector.runs.words import write_command
from gpuagent_common.text import counted

_HOUR_SECONDS = 3600.0
# A terminal of this width folds long names: further tables would not fit below.
USUAL_COLUMNS = 80


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


def find_jobs(ask: Ask, chosen: Chosen, prices: Prices | None) -> list[Job]:
    """Return the jobs, those that run first, then the newest first."""
    rows = read_jobs(ask, chosen)
    if not prices or not rows:
        return [Job(row=row) for row in rows]
    costs = zip(rows, find_costs(ask, rows, prices), strict=True)
    return [Job(row=row, cost=cost, currency=currency) for row, (cost, currency) in costs]


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
    chosen = Chosen(user=user, project=project, since=since, limit=limit)
    return render(find_jobs(ask, chosen, prices), chosen)


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


def render(jobs: Sequence[Job], chosen: Chosen) -> Answer:
    """Return the list of the chosen jobs as an answer; CSV has a line for each job."""
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
        text=_sentence(jobs, chosen),
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
        next=_next(jobs, chosen),
        more="all jobs, and what the columns are" if jobs else "",
        facts={"jobs": table},
        csv=[table],
    )


def _sentence(jobs: Sequence[Job], chosen: Chosen) -> str:
    since = chosen.since or A_MONTH
    if not jobs and (chosen.user or chosen.project):
        return f"No jobs of {chosen.user or chosen.project} were seen in {period(since)}."
    if not jobs:
        return f"No jobs were seen in {period(since)}. `gpuagent start` reports jobs, unless with --owners off."
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


def _next(jobs: Sequence[Job], chosen: Chosen) -> str:
    """Return the command that shows what was idle, else the first job; without jobs all jobs, or what was sampled."""
    if any(job.row["idle_gpu_seconds"] for job in jobs):
        return "collector idle"
    if jobs:
        return command_of_job(jobs[0])
    return "collector jobs" if chosen.user or chosen.project else "collector nodes"


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
        next=command_of_job(jobs[0]) if jobs else "collector jobs",
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
