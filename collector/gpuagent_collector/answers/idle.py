"""`collector idle`: the GPUs that jobs held without using them, with their users, hours and money."""

from collections.abc import Sequence
from datetime import timedelta

from gpuagent_collector.answers.jobs import (
    A_MONTH,
    USUAL_COLUMNS,
    Chosen,
    Job,
    columns_of_jobs,
    command_of_job,
    find_jobs,
    money,
    period,
    short,
)
from gpuagent_collector.present.answer import Answer, Legend
from gpuagent_collector.present.human import significant
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.query.ask import Ask
from gpuagent_common.text import counted

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
        text=_sentence(jobs, since),
        parts=[*([table] if jobs else []), Legend(DEFINITION, DEFINITION)],
        next=command_of_job(jobs[0]) if jobs else None,
        facts={"definition": DEFINITION, "jobs": table},
        csv=[table],
    )


def _sentence(jobs: Sequence[Job], since: timedelta) -> str:
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
