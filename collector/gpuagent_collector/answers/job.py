"""`collector job`: one job, what it used against what it held, and what to change."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gpuagent_collector.answers.jobs import Job, find_jobs, money, share
from gpuagent_collector.json_cells import read_words
from gpuagent_collector.present.answer import Answer, Caveat, Section, Verbatim
from gpuagent_collector.present.human import duration, in_unit, significant
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.jobs import Chosen, read_parts
from gpuagent_collector.runs.words import write_command
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted

# Of a curve in a terminal.
_BINS = 60
_BARS = " ▁▂▃▄▅▆▇█"

# At most this share of what was given is in use: less would have done.
_LITTLE_PERCENT = 50.0
# From this on CPUs are busy.
_FULL_PERCENT = 90.0
# So long a job may prepare, before what it did not use says anything.
_PREPARES_SECONDS = 15 * 60

# From so many other jobs on the sentences name what lies outside of all of them.
_ENOUGH = 5

# In which jobs of one user and name agree that are alike, as those that `collector peers` compares.
_ALIKE = ("gpus_held", "held_cores", "node_count", "kind")

# What they are compared in.
_COMPARED: Sequence[tuple[str, str, str, Callable[[float], str]]] = (
    ("seconds", "duration", "row.seconds", duration),
    ("gpu_percent", "GPU %", "gpu_percent", significant),
    ("cpu_percent", "CPU %", "cpu_percent", significant),
    ("cpu_seconds", "CPU time", "row.cpu_seconds", duration),
    ("energy_joules", "energy", "row.energy_joules", in_unit("joules")),
    ("memory_max_bytes", "memory", "row.memory_max_bytes", in_unit("bytes")),
)

_CURVE = """
WITH read AS (
    SELECT time, node_id, device_id, sm_percent, cpu_seconds FROM owner_samples WHERE owner_id IN ({ids})
    UNION ALL
    SELECT time, node_id, device_id, sm_percent.mean, cpu_seconds FROM owner_rollups WHERE owner_id IN ({ids})
), binned AS (
    SELECT
        CAST(floor(least({bins} - 1, greatest(0, {bins} * epoch(time - CAST(? AS TIMESTAMP)) / ?))) AS BIGINT) AS bin,
        node_id, device_id, avg(sm_percent) AS gpu_percent, max(cpu_seconds) AS cpu_seconds, max(time) AS time
    FROM read GROUP BY bin, node_id, device_id
), risen AS (
    SELECT
        *, cpu_seconds - lag(cpu_seconds) OVER before AS rise, epoch(time - lag(time) OVER before) AS seconds
    FROM binned WINDOW before AS (PARTITION BY node_id, device_id ORDER BY bin)
)
SELECT
    bin, avg(gpu_percent) AS gpu_percent, max(gpu_percent) AS busiest_percent,
    CASE WHEN sum(seconds) FILTER (device_id IS NULL) > 0
        THEN greatest(0, sum(rise) / sum(seconds) FILTER (device_id IS NULL)) END AS cores_a_node
FROM risen GROUP BY bin ORDER BY bin
"""


# Of each step of a job of Slurm; one that has not ended was there when the job was seen last.
_STEPS = """
WITH counted AS (
    SELECT
        node_id, owner_id, step, min(started_at) AS started_at, max(ended_at) AS ended_at,
        max(cpu_seconds) AS cpu_seconds, max(memory_max_bytes) AS memory_max_bytes, max(gpus_used) AS gpus_used
    FROM owner_steps WHERE owner_id IN ({ids}) GROUP BY node_id, owner_id, step
)
SELECT
    step, count(DISTINCT node_id) AS nodes, min(started_at) AS started_at,
    CASE WHEN bool_and(ended_at IS NOT NULL) THEN max(ended_at) END AS ended_at,
    epoch(max(coalesce(ended_at, greatest(started_at, CAST(? AS TIMESTAMP)))) - min(started_at)) AS seconds,
    sum(cpu_seconds) AS cpu_seconds, max(memory_max_bytes) AS memory_max_bytes,
    CAST(sum(gpus_used) AS BIGINT) AS gpus_used
FROM counted GROUP BY step ORDER BY started_at, step
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One job: its parts by node and GPU, its steps, its curve, and other jobs of its user with its name.

    Attributes:
        is_alike: whether these had as many CPUs, GPUs and nodes; else no such job is known, and these had others.
    """

    job: Job
    parts: Sequence[dict[str, Any]]
    steps: Sequence[dict[str, Any]]
    curve: Sequence[dict[str, Any]]
    like: Sequence[Job]
    is_alike: bool

    @property
    def nodes(self) -> int:
        """Return the number of its nodes."""
        return len({part["node_id"] for part in self.parts}) or 1

    @property
    def cores_a_node(self) -> float | None:
        """Return the CPUs that it was given on each node, on average; None: unknown."""
        held = self.job.row["held_cores"]
        return held / self.nodes if held else None

    @property
    def cores(self) -> float | None:
        """Return the CPUs in use, on average."""
        row = self.job.row
        used, seconds = row["cpu_seconds"], row["node_seconds"]
        return used / seconds * self.nodes if used is not None and seconds else None


def answer_job(ask: Ask, *, name: str, prices: Prices | None = None) -> Answer:
    """Answer `collector job`; of several lives of a job, such as of a unit that was restarted, all count."""
    found = find_jobs(ask, Chosen(job=name, with_command=True, limit=2), prices)
    if not found:
        raise MisuseError(f"no job is named {name[:80]!r}; `collector jobs` lists them")
    job = found[0]
    (parts,) = read_parts(ask, [job.row])
    ids = ", ".join({str(part["owner_id"]) for part in parts})
    # As many bins as there may be samples.
    seconds = max(job.row["seconds"], 1.0)
    bins = max(1, min(_BINS, int(seconds / 5)))
    curve = ask(_CURVE.format(ids=ids, bins=bins), [str(job.row["started_at"]), seconds])
    steps = ask(_STEPS.format(ids=ids), [str(job.row["last_at"])])
    like: list[Job] = []
    alike: list[Job] = []
    if None not in (job.row["title"], job.row["user_name"]):
        named = find_jobs(ask, Chosen(user=job.row["user_name"], name=job.row["title"]), None)
        like = [each for each in named if each.row["job"] != job.row["job"]]
        alike = [each for each in like if all(each.row[held] == job.row[held] for held in _ALIKE)]
    study = Study(job=job, parts=parts, steps=steps, curve=curve, like=alike or like, is_alike=bool(alike))
    return render(study, others=len(found) - 1)


def render(study: Study, *, others: int = 0) -> Answer:
    """Return the answer; CSV has a line for each node and GPU."""
    job, row = study.job, study.job.row
    changes = list(_changes(study))
    sentences = [_sentence(study), _because(study), _against_others(study), *changes]
    table, steps = _parts(study), _steps(study)
    more = [*(["its steps"] if study.steps else []), *(["the other jobs of this name"] if study.like else [])]
    command = read_words(row["command"]) if row["command"] else None
    text = f"several jobs are named {row['job']}; this is the newest"
    notes = [Caveat(code="several_jobs", text=text, remedy="`collector jobs` lists all")]
    return Answer(
        heading=f"Job {row['job']}",
        text=" ".join(filter(None, sentences)),
        parts=[table, *_curves(study)],
        sections=[
            *([Section("Steps", [steps], is_detail=True)] if study.steps else []),
            *_history(study),
            *([Section("Command", [" ".join(command)], is_detail=True)] if command else []),
        ],
        caveats=notes if others else [],
        next=_next(study),
        more=" and ".join(more),
        facts={
            **{name: value for name, value in row.items() if not name.startswith("all_") and name != "only_node"},
            **{name: getattr(job, name) for name in ("state", "gpu_percent", "cpu_percent", "cost", "currency")},
            "because": _shares(study),
            "changes": changes,
            "parts": table,
            "steps": steps,
            "curve": study.curve,
            "against": _compared(study),
            "like": _listed(study),
        },
        csv=[table],
    )


def _sentence(study: Study) -> str:
    """Return what it held and used, and for how long."""
    job, row = study.job, study.job.row
    who = f"{row['title'] or row['kind']} of {row['user_name'] or 'an unknown user'}"
    runs = {"running": "has run", "ended": "ran", "lost": "was seen"}[job.state]
    text = f"{who} {runs} for {duration(row['seconds'])}"
    text += f" on {', '.join(row['nodes'])}" if row["nodes"] else ""
    text += f" and {counted(row['node_count'] - 4, 'more node')}" if row["node_count"] > 4 else ""
    if job.gpus:
        holds = "held" if row["gpus_held"] else "used"
        text += f"; it {holds} {counted(job.gpus, 'GPU')}"
        if row["gpus_used"] is not None:
            text += f", with kernels on {row['gpus_used']}" if row["gpus_used"] else ", without a kernel"
        text += f", in {significant(job.gpu_percent, 2)} % of their time" if job.gpu_percent else ""
    elif job.gpus is None and row["kind"] == "slurm":
        text += "; which GPUs it held is unknown, since the agent may not read its environment"
    elif row["is_holder"] is None and row["kind"] == "pod":
        text += "; GPUs held: unknown here, without the kubelet's list and the pods' names (docs/jobs.md)"
    if study.cores is not None:
        of = f" of {significant(row['held_cores'])}" if row["held_cores"] else ""
        text += f"; CPUs in use: {significant(study.cores, 2)}{of}"
    text += f"; memory: {_size(row['memory_max_bytes'])}"
    text += f"; energy: {in_unit('joules')(row['energy_joules'])}" if row["energy_joules"] else ""
    paid = money([job])
    text += f"; cost: {paid}." if paid else "."
    if job.state == "lost":
        text += f" It was last seen at {row['last_at']:%Y-%m-%d %H:%M} UTC; its agent reports nothing more."
    return text


def _shares(study: Study) -> dict[str, float]:
    """Return the shares of its time, in percent, by what bounded it; they sum to 100."""
    known = [one for one in study.curve if one["busiest_percent"] is not None and one["cores_a_node"] is not None]
    if not known:
        return {}
    held = study.cores_a_node
    full, works, waits = "all CPUs busy, GPUs waiting", "CPUs at work, GPUs waiting", "both waiting"
    shares = dict.fromkeys(("GPUs busy", full, works, waits), 0.0)
    for one in known:
        rest = works if one["cores_a_node"] >= _FULL_PERCENT / 100 else waits
        if (share(one["cores_a_node"], held) or 0) >= _FULL_PERCENT:
            rest = full
        busy = min(100.0, one["busiest_percent"])
        shares["GPUs busy"] += busy / len(known)
        shares[rest] += (100 - busy) / len(known)
    return shares


def _because(study: Study) -> str:
    shares = {name: percent for name, percent in _shares(study).items() if percent >= 1}
    ordered = sorted(shares.items(), key=lambda one: -one[1])
    return f"Of its time: {'; '.join(f'{name} {percent:.0f} %' for name, percent in ordered)}." if ordered else ""


def _against_others(study: Study) -> str:
    """Return its duration and GPU use beside the ended jobs like it, and in what it is outside all of them."""
    compared = _compared(study).rows
    shown = [one for one in compared if one["figure"] in ("seconds", "gpu_percent")]
    if not shown:
        return ""
    others = counted(max(one["jobs"] for one in shown), "ended job")
    figures = [f"{one['title']} {one['show'](one['this'])} against {one['show'](one['median'])}" for one in shown]
    outside = [one for one in compared if one["jobs"] >= _ENOUGH and one["outside"]]
    words = [f"{one['title']} is {one['outside']} than in all {one['jobs']}" for one in outside]
    which = "like it" if study.is_alike else "of this user and name, with other CPUs, GPUs or nodes"
    text = f"Beside the median of {others} {which}: {', '.join(figures)}."
    return " ".join(filter(None, (text, f"Its {'; its '.join(words)} others." if words else "")))


def _compared(study: Study) -> Table:
    """Return what the job used beside the other ended jobs of its user and name; it is outside where all differ."""
    rows = []
    for key, title, value, show in _COMPARED:
        column = Column(key, value=value)
        this, others = column.cell(study.job), [column.cell(one) for one in study.like if one.state == "ended"]
        known = [each for each in others if each is not None]
        if this is None or not known:
            continue
        low, high = min(known), max(known)
        outside = "higher" if this > high else "lower" if this < low else None
        figures = {"this": this, "median": median(known), "lowest": low, "highest": high}
        rows.append({"figure": key, "title": title, "jobs": len(known), "outside": outside, "show": show, **figures})
    names = ("this", "median", "lowest", "highest")
    columns = (
        Column("figure", None),
        Column(None, "", "title", left=True),
        *(Column(name, value=name) for name in names),
        *(Column(None, name, _writer_of(name)) for name in names),
        Column("jobs", "other jobs"),
        Column("outside", "this is", left=True),
    )
    return Table(columns, rows)


def _size(value: float | None) -> str:
    """Return a number of bytes for people."""
    return "unknown" if value is None else in_unit("bytes")(value)


def _writer_of(figure: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row["show"](row[figure]))


def _listed(study: Study) -> Table:
    """Return the other jobs, the newest first."""
    columns = (
        Column("job", "job", "row.job", left=True),
        Column("started_at", "since", "row.started_at", show="{:%Y-%m-%d %H:%M}".format, left=True),
        Column("state", "state", left=True),
        *(Column(key, title, value, show) for key, title, value, show in _COMPARED),
    )
    return Table(columns, study.like, most=MOST_ROWS)


def _history(study: Study) -> Iterator[Section]:
    if study.like:
        heading = f"Other jobs named {study.job.row['title']} of {study.job.row['user_name']}"
        yield Section(heading, [_compared(study), _listed(study)], is_detail=True)


def _changes(study: Study) -> Iterator[str]:
    """Yield what to ask for next time."""
    row = study.job.row
    held, used = row["gpus_held"], row["gpus_used"]
    is_early = row["is_running"] and row["seconds"] < _PREPARES_SECONDS
    if held and used is not None and used < held and not is_early:
        yield f"It asked for {counted(held, 'GPU')} and used {used}: ask for {used or 'none'}."
    cores, given = study.cores, row["held_cores"]
    if given and cores is not None and given >= 4 and (share(cores, given) or 0) < _LITTLE_PERCENT:
        yield f"It asked for {given:.0f} CPUs and used {significant(cores, 2)}."
    most, memory = row["memory_max_bytes"], row["memory_held_bytes"]
    if memory and most is not None and (share(most, memory) or 0) < _LITTLE_PERCENT:
        yield f"It asked for {_size(memory)} of memory on each node and used {_size(most)}."


def _parts(study: Study) -> Table:
    """Return a row for each node, and each GPU on it."""
    columns = (
        Column("node", "node", "hostname", left=True),
        Column("gpu", "GPU", _gpu_name(study), left=True),
        Column("is_held", "held", lambda part: None if part["is_held"] is None else bool(part["is_held"]), left=True),
        Column("gpu_percent", "GPU %", lambda part: share(part["gpu_seconds"], part["observed_seconds"])),
        Column("gpu_memory_max_bytes", "GPU memory", unit="bytes"),
        Column("idle_seconds", "idle", show=duration),
        Column("energy_joules", "energy", unit="joules"),
        Column("cpu_seconds", "CPU time", show=duration),
        Column("memory_max_bytes", "memory", unit="bytes"),
        *(Column(name) for name in ("started_at", "ended_at", "held_cores", "memory_held_bytes", "observed_seconds")),
    )
    return Table(columns, study.parts, most=MOST_ROWS)


def _steps(study: Study) -> Table:
    """Return the steps of a job of Slurm, all nodes together."""
    columns = (
        Column("step", "step", lambda step: f"{study.job.row['job']}.{step['step']}", left=True),
        Column("nodes", "nodes"),
        Column("started_at", "since", show="{:%m-%d %H:%M:%S}".format, left=True),
        Column("seconds", "for", show=duration),
        Column("cpu_seconds", "CPU time", show=duration),
        Column("memory_max_bytes", "memory", unit="bytes"),
        Column("gpus_used", "GPUs used"),
        Column("ended_at"),
    )
    return Table(columns, study.steps, most=MOST_ROWS)


def _gpu_name(study: Study) -> Any:
    """Return what names a part's GPU: they are numbered as they are listed."""
    ids = list(dict.fromkeys(part["device_id"] for part in study.parts if part["device_id"] is not None))
    return lambda part: None if part["device_id"] is None else ids.index(part["device_id"]) + 1


def _curves(study: Study) -> Iterator[Verbatim]:
    """Yield the use of GPUs and CPUs over its time, each as a line of bars."""
    held = study.cores_a_node or max((one["cores_a_node"] or 0 for one in study.curve), default=0)
    lines = []
    for title, values in (
        ("GPU", {one["bin"]: one["gpu_percent"] for one in study.curve}),
        ("CPU", {one["bin"]: share(one["cores_a_node"], held) for one in study.curve}),
    ):
        if any(value is not None for value in values.values()):
            bars = (_bar(values.get(number)) for number in range(max(values) + 1))
            lines.append(f"{title} {''.join(bars)}")
    if lines:
        yield Verbatim(title=f"Over {duration(study.job.row['seconds'])}", text="\n".join(lines))


def _bar(percent: float | None) -> str:
    return " " if percent is None else _BARS[min(len(_BARS) - 1, round(percent / 100 * (len(_BARS) - 1)))]


def _next(study: Study) -> str | None:
    user = study.job.row["user_name"]
    if study.job.row["idle_gpu_seconds"]:
        return write_command("idle", {"--user": user})
    if study.is_alike and study.job.state == "ended" and any(each.state == "ended" for each in study.like):
        return write_command("peers", {}, sides=[study.job.row["job"]])
    return write_command("jobs", {"--user": user}) if user else None
