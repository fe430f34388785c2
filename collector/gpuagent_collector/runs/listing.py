"""The list of runs: its statement and its columns, for the terminal and the pages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuagent_collector.json_cells import read_object, read_words
from gpuagent_collector.present.human import ago, duration, significant
from gpuagent_collector.present.shortening import CUT, shorten
from gpuagent_collector.present.statuses import STATUSES, WARMS_UP
from gpuagent_collector.present.terminal import ListColumn
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import literal
from gpuagent_collector.runs.arguments import identify_command, name_commands
from gpuagent_collector.runs.words import distinguishing
from gpuagent_collector.times import utc_now
from gpuagent_common.naming import WARM_UP
from gpuagent_common.text import harmless

# Others that use less than this share of a node's cores are no reason for a warning.
FOREIGN_SHARE = 1 / 3

# Of a text in the list, unless it is like another then; --json has all of it.
_MOST_CHARACTERS = 24
_MOST_SETTINGS, _MOST_REASON = 40, 76
# Of a longer identity both ends are shown, by which commands know it too.
_RUN_WIDTH = 26
# Its end that no other has, such as -1f2e3d4c5b.
_OWN_PART = 11

_SQL = """
WITH listed AS (
SELECT
    run_id, workload, runs.platform, environment, interference, limits, repeat, status, exit_code, reason,
    queued_at, runs.started_at, runs.ended_at, epoch(runs.ended_at - runs.started_at) AS duration_seconds,
    hostname, runs.nodes AS node_count, experiment, image, parameters, runs.labels, runs.node_id,
    command, note, is_excluded, cpu_threads
FROM runs LEFT JOIN sessions USING (session_id)
WHERE {conditions}
ORDER BY coalesce(runs.started_at, queued_at) DESC, run_id DESC
LIMIT {limit}
), figures AS (
SELECT run_id, max(value) FILTER (metric = 'throughput') AS throughput,
    coalesce((SELECT max(unit) FROM results WHERE results.run_id = metrics.run_id AND name = 'throughput'),
        max(unit) FILTER (metric = 'throughput')) AS throughput_unit,
    max(value) FILTER (metric = 'cpu_used_cores') - max(value) FILTER (metric = 'process_cpu_cores') AS others_cores
FROM metrics SEMI JOIN listed USING (run_id)
WHERE metric IN ('throughput', 'cpu_used_cores', 'process_cpu_cores') GROUP BY run_id
), behind AS (
SELECT run_id, sum(TRY_CAST(detail->>'processes' AS BIGINT))::BIGINT AS left_processes
FROM run_events SEMI JOIN listed USING (run_id) WHERE event = 'left' AND rank IS NULL GROUP BY run_id
)
SELECT * FROM listed LEFT JOIN behind USING (run_id) LEFT JOIN figures USING (run_id)
ORDER BY coalesce(started_at, queued_at) DESC, run_id DESC
""".strip()


_PARTS_SQL = """
SELECT
    runs.run_id, hostname, part.status, part.exit_code, part.reason, part.started_at, part.ended_at,
    epoch(part.ended_at - part.started_at) AS duration_seconds, runs.status AS run_status, part.node_id
FROM runs JOIN run_parts AS part USING (run_id) LEFT JOIN sessions ON sessions.session_id = part.session_id
WHERE runs.nodes > 1 AND {conditions}
ORDER BY queued_at DESC, run_id DESC, hostname
LIMIT {limit}
""".strip()


def runs_sql(
    filters: dict[str, str | None], limit: int, *, of_parts: bool = False, names: Sequence[str] = (), after: int = 0
) -> str:
    """Return the statement that lists the runs, or parts, with these values of columns; None: any value.

    `names` are beginnings of the runs' identities; empty: all runs. It begins `after` so many of them.
    """
    conditions = []
    if filters.get("status") == WARMS_UP:
        experiment = filters.get("experiment")
        filters = {**filters, "status": "succeeded", "experiment": experiment and f"{experiment}{WARM_UP}"}
        conditions.append(f"ends_with(runs.experiment, '{WARM_UP}')")
    conditions += [f"runs.{column} = {literal(value)}" for column, value in filters.items() if value is not None]
    if names:
        conditions.append(f"({' OR '.join(map(_is_named, names))})")
    return (_PARTS_SQL if of_parts else _SQL).format(
        conditions=" AND ".join(conditions) or "true", limit=f"{limit} OFFSET {after}"
    )


def _is_named(name: str) -> str:
    begin, _, end = name.partition(CUT)
    return f"starts_with(runs.run_id, {literal(begin)}) AND ends_with(runs.run_id, {literal(end)})"


def run_columns(rows: Sequence[Mapping[str, Any]], *, whole: bool = False) -> list[ListColumn]:
    """Return the columns of the list of runs; those of texts only where a row has one.

    `whole`: long texts are below their rows, not cut.
    """
    now = utc_now()
    settings = _differing(rows, lambda row: read_object(row["parameters"], "parameters")) | _commands_apart(rows)
    labels = _differing(rows, lambda row: read_object(row["labels"], "labels"), _MOST_SETTINGS)

    def where_any(
        title: str, show: Callable[[Mapping[str, Any]], str | None], rank: int, **look: Any
    ) -> list[ListColumn]:
        look = look or {"max_width": _MOST_CHARACTERS}
        return [ListColumn(title=title, show=show, rank=rank, **look)] if any(map(show, rows)) else []

    below: dict[str, Any] = {"below": True}
    in_row = below if whole else {"max_width": _MOST_SETTINGS, "cut": _cut_settings}
    most_reason = None if whole else _MOST_REASON
    name: dict[str, Any] = {} if whole else {"max_width": _RUN_WIDTH, "cut": _cut_names}
    return [
        ListColumn(title="run", show=lambda row: row["run_id"], rank=0, **name),
        ListColumn(title="workload", show=lambda row: row["workload"], rank=10),
        ListColumn(
            title="platform",
            show=lambda row: row["platform"],
            rank=3 if len({row["platform"] for row in rows}) > 1 else 12,
        ),
        ListColumn(title="status", show=_status, rank=1, style=lambda text: STATUSES.get(text, "")),
        *where_any("settings", lambda row: settings[row["run_id"]], 4, **in_row),
        ListColumn(title="took", show=_took, rank=2, right=True),
        *where_any("throughput", _throughput, 5),
        ListColumn(title="started", show=lambda row: row["started_at"] and ago(row["started_at"], now), rank=6),
        *where_any("why", lambda row: _shortened(row["reason"], most_reason), 7, **below),
        *where_any("others used", _disturbed, 7),
        *where_any("left behind", _left_behind, 4),
        *where_any("labels", lambda row: labels[row["run_id"]], 8),
        *where_any("note", lambda row: _shortened(row["note"]), 8),
        *where_any("load beside it", lambda row: None if row["interference"] == "none" else row["interference"], 10),
        ListColumn(title="environment", show=lambda row: row["environment"], rank=11),
        ListColumn(title="repeat", show=lambda row: row["repeat"] and str(row["repeat"]), rank=12, right=True),
        ListColumn(title="node", show=_node, rank=5 if len(set(map(_node, rows))) > 1 else 13, max_width=24),
        ListColumn(title="limits", show=lambda row: row["limits"], rank=14, max_width=24),
        ListColumn(title="experiment", show=lambda row: row["experiment"], rank=15),
    ]


def _commands_apart(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return, by run of a program, the arguments in which the listed runs of its workload differ, with their names."""
    commands: dict[str, dict[str, tuple[str, ...]]] = {}
    for row in rows:
        if not read_object(row["parameters"], "parameters"):
            commands.setdefault(row["workload"], {})[row["run_id"]] = tuple(map(str, read_words(row["command"])))
    texts: dict[str, str] = {}
    for of_one in commands.values():
        if len({identify_command(command) for command in of_one.values()}) > 1:
            names = name_commands(sorted(set(of_one.values())))
            texts |= {run_id: harmless(names[command]) for run_id, command in of_one.items()}
    return texts


def _cut_settings(texts: Sequence[str], most: int) -> Sequence[str]:
    """Return settings of at most `most` characters, cut where they do not differ, or else to their ends."""
    known = [text for text in texts if text != ABSENT]
    short = {ABSENT: ABSENT, **dict(zip(known, shorten(known, most), strict=True))}
    return [text if len(text) <= most else f"{CUT}{text[1 - most :]}" for text in map(short.__getitem__, texts)]


def _cut_names(run_ids: Sequence[str], most: int) -> Sequence[str]:
    """Return identities of at most `most` characters, each with its last part, which is its own."""
    begin = most - _OWN_PART - 1
    return [each if len(each) <= most else f"{each[:begin]}{CUT}{each[-_OWN_PART:]}" for each in run_ids]


def _differing(
    rows: Sequence[Mapping[str, Any]], read: Callable[[Mapping[str, Any]], dict[str, Any]], most: int | None = None
) -> dict[str, str]:
    """Return, by run, those of its settings in which the listed runs of its workload differ, in short words."""
    by_workload: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_workload.setdefault(row["workload"], {})[row["run_id"]] = read(row)
    texts: dict[str, str] = {}
    for values in by_workload.values():
        others, written = list(values.values()), []
        for own in others:
            given = {name: value for name, value in distinguishing(own, others).items() if value is not None}
            written.append(harmless(" ".join(f"{name}={value}" for name, value in given.items())))
        texts |= zip(values, shorten(written, most) if most else written, strict=True)
    return texts


def _left_behind(row: Mapping[str, Any]) -> str | None:
    """Return the number of processes that the program left in the background, which were ended with it."""
    number = row["left_processes"]
    return f"{number:,} process{'es' * (number != 1)}" if number else None


def _status(row: Mapping[str, Any]) -> str | None:
    if row["is_excluded"]:
        return "excluded"
    warms_up = row["status"] == "succeeded" and (row["experiment"] or "").endswith(WARM_UP)
    return WARMS_UP if warms_up else row["status"]


def _throughput(row: Mapping[str, Any]) -> str | None:
    value = row["throughput"]
    return None if value is None else f"{significant(value)} {row['throughput_unit'] or ''}".rstrip()


def _disturbed(row: Mapping[str, Any]) -> str | None:
    """Return the cores that others used, if these were so many that comparisons warn of them."""
    used, cores = row["others_cores"], row["cpu_threads"]
    is_explained = row["node_count"] > 1 or row["interference"] not in (None, "none")
    if is_explained or not used or not cores or used < FOREIGN_SHARE * cores:
        return None
    return f"{significant(used, 2)} of {cores} cores"


def part_columns() -> list[ListColumn]:
    """Return the columns of the list of parts of runs, one a node."""
    now = utc_now()
    return [
        ListColumn(title="run", show=lambda row: row["run_id"], rank=0),
        ListColumn(title="node", show=lambda row: row["hostname"] or "others", rank=1, max_width=24),
        ListColumn(title="status", show=lambda row: row["status"], rank=2, style=lambda text: STATUSES.get(text, "")),
        ListColumn(title="started", show=lambda row: row["started_at"] and ago(row["started_at"], now), rank=3),
        ListColumn(title="took", show=_took, rank=4, right=True),
        ListColumn(title="why", show=lambda row: row["reason"], rank=5, max_width=60),
    ]


def _shortened(text: str | None, most: int | None = _MOST_CHARACTERS) -> str | None:
    """Return the beginning of a text; None for an empty one."""
    short = harmless(text or "")
    return f"{short[: most - 1]}{CUT}" if most and len(short) > most else short or None


def _node(row: Mapping[str, Any]) -> str | None:
    """Return the run's node, and the number of its other nodes."""
    others = row["node_count"] - 1
    return f"{row['hostname']} +{others}" if others else row["hostname"]


def _took(row: Mapping[str, Any]) -> str | None:
    seconds = row["duration_seconds"]
    return None if seconds is None else duration(seconds)
