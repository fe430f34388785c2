"""A run as trackers of experiments take it: parameters, figures, curves, and what its nodes and GPUs did."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import quote

from gpuagent_collector.exchange.logs import FIGURE_PREFIX, SYSTEM_PREFIX
from gpuagent_collector.json_cells import read_object, read_words
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.named_runs import read_started_run
from gpuagent_collector.runs.parts import gpus_of_run, nodes_of_run, sessions_of_run
from gpuagent_collector.runs.series import TABLES
from gpuagent_collector.times import utc_now
from gpuagent_common.quantities import QUANTITIES
from gpuagent_common.statuses import FINAL_STATUSES

# What is measured is published as means over so many seconds, as MLflow does.
_BUCKET_SECONDS = 10
# By then an agent has sent what it measured.
_LAG = timedelta(seconds=20)


class Point(NamedTuple):
    """A value at a step, and its time in UTC without a zone."""

    name: str
    step: int
    time: datetime
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """A run for a tracker; times are in UTC without a zone.

    Attributes:
        project: the tracker's group of runs, our experiment.
        parameters: what was asked of the program, and where it ran; they never change.
        facts: what may change: status, labels, and the address of the run's page.
        computed_at: when the figures were computed; None: they were not yet.
        curves: what the program reported by step, in the order of steps.
        system: means over ten seconds of each node and GPU.
    """

    run_id: str
    project: str
    status: str
    started_at: datetime
    ended_at: datetime | None
    parameters: Mapping[str, str]
    facts: Mapping[str, str]
    figures: Mapping[str, float]
    computed_at: datetime | None
    curves: Sequence[Point]
    system: Sequence[Point]

    @property
    def points(self) -> Iterator[Point]:
        """The curves, the measurements, and each figure as a point at the time of its computation."""
        yield from self.curves
        yield from self.system
        for name, value in self.figures.items():
            yield Point(FIGURE_PREFIX + name, 0, self.computed_at or self.started_at, value)


def load_published(ask: Ask, name: str, *, project: str | None, pages: str | None) -> PublishedRun:
    """Return what trackers get of the run with this identity, or the only one that begins like it.

    Args:
        project: instead of its experiment.
        pages: address of the collector's pages, for a link; None: no link.

    Raises:
        MisuseError: there is no such run, or it has not started.
    """
    run = read_started_run(ask, name)
    run_id = run["run_id"]
    hosts, gpus = nodes_of_run(ask, run_id), gpus_of_run(ask, run_id)
    parameters = {key: str(value) for key, value in read_object(run["parameters"], "parameters").items()}
    for setting in _SETTINGS:
        if run[setting] is not None:
            parameters.setdefault(setting, str(run[setting]))
    if gpus:
        parameters.setdefault(
            "gpus", ", ".join(f"{n} x {gpu}" for gpu, n in Counter(row["name"] for row in gpus).items())
        )
    labels = read_object(run["labels"], "labels")
    facts = {f"label.{key}": str(value) for key, value in labels.items()}
    facts |= {key: str(run[key]) for key in _FACTS if run[key] is not None}
    if words := read_words(run["command"]):
        facts["command"] = shlex.join(words)
    facts |= {"run_id": run_id, "node": ", ".join(hosts.values())}
    if pages:
        facts["page"] = f"{pages.rstrip('/')}/runs/{quote(run_id, safe='')}"
    figures = ask(_FIGURES, [run_id])
    return PublishedRun(
        run_id=run_id,
        project=project or run["experiment"] or "gpuagent",
        status=run["status"],
        started_at=run["started_at"],
        ended_at=run["ended_at"] if run["status"] in FINAL_STATUSES else None,
        parameters=parameters,
        facts=facts,
        figures={row["metric"]: row["value"] for row in figures if isfinite(row["value"])},
        computed_at=figures[0]["computed_at"] if figures else None,
        curves=[*_curves(ask(_CURVES, [run_id, run_id]))],
        system=[*_system(ask, run, hosts, gpus)],
    )


def _curves(rows: Sequence[Mapping[str, Any]]) -> Iterator[Point]:
    """Yield the curves; those of ranks above the lowest say so, also where only the lowest has published before."""
    first = min((row["rank"] or 0 for row in rows), default=0)
    for row in rows:
        of_rank = f"/rank {row['rank']}" if (row["rank"] or 0) > first else ""
        if isfinite(row["value"]):
            yield Point(safe_name(row["name"]) + of_rank, row["step"], row["time"], row["value"])


def _system(
    ask: Ask, run: Mapping[str, Any], hosts: Mapping[int, str], gpus: Sequence[Mapping[str, Any]]
) -> Iterator[Point]:
    sessions = sessions_of_run(ask, run["run_id"])
    until = run["ended_at"] if run["status"] in FINAL_STATUSES else utc_now() - _LAG
    devices = dict(_name_gpus(hosts, gpus))
    for table, keys, names in (
        ("host_samples", [*hosts], {key: f"{host}/" for key, host in hosts.items()}),
        ("process_samples", [run["run_id"]], {key: f"{host}/process_" for key, host in hosts.items()}),
        ("gpu_samples", [*devices], devices),
    ):
        columns = [each.column for each in QUANTITIES[table] if each.has_curve]
        sql = _SAMPLES.format(
            table=table,
            rollups=table.replace("_samples", "_rollups"),
            key=TABLES[table].key,
            type=TABLES[table].type,
            part="node_id" if table == "process_samples" else TABLES[table].key,
            columns=", ".join(columns),
            thinned=", ".join(f"{column}.mean" for column in columns),
            means=", ".join(f"avg({column}) AS {column}" for column in columns),
            seconds=_BUCKET_SECONDS,
        )
        times = [str(run["started_at"]), str(until)]
        for row in ask(sql, [[str(key) for key in keys], sessions, *times]):
            # A bucket that is not over yet is published later.
            if row["part"] not in names or (run["status"] not in FINAL_STATUSES and row["ended"] > until):
                continue
            step = (row["ended"] - run["started_at"]) // timedelta(seconds=_BUCKET_SECONDS)
            for column in columns:
                if row[column] is not None and isfinite(row[column]):
                    name = SYSTEM_PREFIX + safe_name(names[row["part"]] + column)
                    yield Point(name, step, row["ended"], float(row[column]))


def _name_gpus(hosts: Mapping[int, str], gpus: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Yield the beginning of the names of each GPU's measurements."""
    places = Counter((row["node_id"], row["device_index"]) for row in gpus)
    seen = Counter[tuple[int, int | None]]()
    for row in gpus:
        place = row["node_id"], row["device_index"]
        number = str(seen[place]) if row["device_index"] is None else str(row["device_index"])
        if row["device_index"] is not None and places[place] > 1:  # MIG instances have the index of their GPU
            number += f".{seen[place]}"
        seen[place] += 1
        yield row["device_id"], f"{hosts.get(row['node_id'], row['node_id'])}/gpu_{number}_"


def safe_name(name: str) -> str:
    """Return a name that every tracker takes."""
    return re.sub(r"[^\w./ -]", "_", name, flags=re.ASCII)[:200].strip("/. ") or "_"


def unix_milliseconds(time: datetime) -> int:
    """Return the milliseconds since 1970 of a time in UTC without a zone."""
    return (time.replace(tzinfo=timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


# Facts that an operator or the run's course may change, and settings that stay.
_FACTS = ("experiment", "workload", "status", "reason", "note")
_SETTINGS = ("platform", "environment", "image", "interference", "limits", "repeat", "nodes")

_FIGURES = """
SELECT metric, value, max(computed_at) OVER () AS computed_at
FROM metrics JOIN (SELECT run_id, metric, max(computed_at) AS computed_at FROM run_metrics GROUP BY ALL)
    USING (run_id, metric)
WHERE run_id = ? AND value IS NOT NULL ORDER BY metric"""

# What each rank reported by step, and how long its measured steps took.
_CURVES = """
SELECT name, rank, step, max(time) AS time, arg_max(value, time) AS value FROM (
    SELECT name, rank, TRY_CAST(detail->>'step' AS BIGINT) AS step, time, TRY_CAST(detail->>'value' AS DOUBLE) AS value
    FROM run_events WHERE run_id = ? AND event = 'metric' AND name IS NOT NULL
    UNION ALL
    SELECT 'step_seconds', rank, step, time, wall_seconds FROM steps WHERE run_id = ? AND phase = 'measure'
)
WHERE step IS NOT NULL AND value IS NOT NULL AND time IS NOT NULL GROUP BY name, rank, step ORDER BY step, name, rank"""

_SAMPLES = """
SELECT {part} AS part, time_bucket(INTERVAL {seconds} SECONDS, time) + INTERVAL {seconds} SECONDS AS ended, {means}
FROM (
    SELECT {key}, node_id, session_id, time, {columns} FROM {table}
    UNION ALL
    SELECT {key}, node_id, session_id, time, {thinned} FROM {rollups}
)
WHERE {key} IN (SELECT CAST(unnest(CAST(? AS VARCHAR[])) AS {type}))
    AND session_id IN (SELECT unnest(CAST(? AS BIGINT[])))
    AND time BETWEEN CAST(? AS TIMESTAMP) AND CAST(? AS TIMESTAMP)
GROUP BY ALL ORDER BY ended, part"""
