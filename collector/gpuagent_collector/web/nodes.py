"""`/nodes/UUID`: one node's hardware and software, its latest samples as curves, and its runs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from gpuagent_collector.json_cells import read_object
from gpuagent_collector.present.human import ago, duration, notation
from gpuagent_collector.present.statuses import STATUSES
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.run_sessions import PRESENT_SQL
from gpuagent_collector.runs.series import CHARTS, Chart
from gpuagent_collector.runs.specs import DEVICE_PROPERTIES, SESSION_PROPERTIES
from gpuagent_collector.times import utc_now
from gpuagent_collector.web.layout import REFRESH_SECONDS, Query, check_fields, render, text, whole_number
from gpuagent_common.clocks import describe_offset, is_clock_wrong
from gpuagent_common.naming import shared_identity
from gpuagent_common.text import harmless

# Minutes of the curves, and their names.
_WINDOWS = {10: "10 minutes", 60: "an hour", 1440: "a day"}

_BUCKETS = 150
# In units of the curves' drawing, which the browser stretches.
_WIDTH, _HEIGHT = 300, 100
# A curve is interrupted where more buckets in a row are empty; slowed agents send every 10 s.
_BREAK_BUCKETS = 5
_COLORS = 6
_MOST_RUNS = 50

# Older than this, the newest delivery of a node is its end, and not now.
_SILENT_SECONDS = 30

# Key of a table's rows within a node.
_KEYS = {"host_samples": "node_id", "gpu_samples": "device_id"}
_SHOWN = [chart for chart in CHARTS if chart.table in _KEYS and not chart.total and not chart.factor[0]]


class Nodes:
    """The pages of single nodes."""

    def __init__(self, ask: Ask, *, source: str) -> None:
        """Take the function that reads the store, and the store's name."""
        self._ask = ask
        self._source = source

    def answer(self, query: Query) -> Response:
        """Return the page of the node with the UUID `name`.

        Raises:
            MisuseError: a field of the address is invalid.
            GpuAgentError: the store cannot be read.
        """
        check_fields(query, "a node's page", ("minutes", "refresh"), has_name=True)
        minutes = whole_number(query, "minutes", unit="minutes", most=1440) or min(_WINDOWS)
        refresh_seconds = whole_number(query, "refresh", unit="seconds", most=3600)
        found = self._ask(_NODE, [query["name"]])
        if not found:
            return text(harmless(f"no node has the UUID {query['name'][:100]}; / lists the nodes"), status=404)
        (node,) = found
        devices = self._ask(_DEVICES, [node["session_id"]])
        now = utc_now()
        seen = node["last_seen_at"] or now
        end = now if (now - seen).total_seconds() < _SILENT_SECONDS else seen
        begin = end - timedelta(minutes=minutes)
        runs = self._ask(_RUNS, [node["node_id"]])

        def address(**changes: int | None) -> str:
            fields = {"minutes": minutes, "refresh": refresh_seconds} | changes
            return "?" + urlencode({name: value for name, value in fields.items() if value is not None})

        state, state_class = _state(node, now)
        return render(
            "node.html",
            name=node["hostname"] or node["node_uuid"],
            platform=node["platform"] or ABSENT,
            state=state,
            state_class=state_class,
            taken_at=f"{now:%Y-%m-%d %H:%M:%S}",
            source=self._source,
            refresh_seconds=refresh_seconds,
            toggled_refresh=address(refresh=None if refresh_seconds else REFRESH_SECONDS),
            windows=[(name, None if each == minutes else address(minutes=each)) for each, name in _WINDOWS.items()],
            minutes=minutes,
            begin=f"{begin:%Y-%m-%d %H:%M:%S}",
            end=f"{end:%Y-%m-%d %H:%M:%S}",
            width=_WIDTH,
            height=_HEIGHT,
            gpus=len(devices),
            charts=list(self._charts(node, [device["device_id"] for device in devices], begin, end)),
            properties=list(_properties(node, devices)),
            runs=[_run(run, now) for run in runs[:_MOST_RUNS]],
            is_cut=len(runs) > _MOST_RUNS,
        )

    def _charts(
        self, node: Mapping[str, Any], devices: Sequence[int], begin: datetime, end: datetime
    ) -> Iterator[dict[str, Any]]:
        """Yield what the template shows of each quantity that was read: a line of the node, or of each GPU."""
        width_seconds = (end - begin).total_seconds() / _BUCKETS
        for table, key in _KEYS.items():
            charts = [chart for chart in _SHOWN if chart.table == table]
            means = ", ".join(f"avg({chart.column}) AS {chart.column}" for chart in charts)
            statement = _MEANS.format(key=key, means=means, table=table)
            span = [begin.isoformat(), end.isoformat()]
            rows = self._ask(statement, [span[0], width_seconds, node["node_id"], node["rivals"] or [], *span])
            for chart in charts:
                lines: dict[int, list[tuple[int, float]]] = defaultdict(list)
                for row in rows:
                    if row[chart.column] is not None:
                        position = devices.index(row["part"]) if row["part"] in devices else 0
                        lines[position].append((row["bucket"], row[chart.column]))
                if lines:
                    yield _chart(chart, sorted(lines.items()))


def _chart(chart: Chart, lines: Sequence[tuple[int, Sequence[tuple[int, float]]]]) -> dict[str, Any]:
    highest = max(value for _, line in lines for _, value in line)
    scale = notation([highest], chart.unit)
    top = 100.0 if chart.unit == "percent" else highest or 1.0
    last = ", ".join(f"{position}: " * (len(lines) > 1) + scale.write(line[-1][1]) for position, line in lines)
    drawn = [(f"line-{position % _COLORS}", points) for position, line in lines for points in _stretches(line, top)]
    return {"title": chart.title, "words": f"{last}; up to {scale.write(highest)}", "lines": drawn}


def _stretches(line: Sequence[tuple[int, float]], top: float) -> Iterator[str]:
    """Yield the points of each stretch without an interruption, as SVG has them."""
    stretch: list[str] = []
    before: int | None = None
    for bucket, value in line:
        if before is not None and bucket - before > _BREAK_BUCKETS:
            yield " ".join(stretch)
            stretch = []
        x, y = bucket * _WIDTH / _BUCKETS, _HEIGHT * (0.98 - 0.94 * min(value / top, 1.0))
        # A line of one point is not drawn.
        stretch += [f"{x:g},{y:.1f}"] if stretch else [f"{x:g},{y:.1f}", f"{x + 1:g},{y:.1f}"]
        before = bucket
    yield " ".join(stretch)


def _state(node: Mapping[str, Any], now: datetime) -> tuple[str, str]:
    if node["ended_at"]:
        # It said so by its own clock.
        return f"gone since {ago(node['ended_at'] + timedelta(seconds=node['clock_offset_seconds'] or 0), now)}", "dim"
    if node["last_seen_at"] is None:
        return "has not delivered yet", "dim"
    seen = ago(node["last_seen_at"], now)
    is_silent = (now - node["last_seen_at"]).total_seconds() >= _SILENT_SECONDS
    return (f"silent, last seen {seen}", "red") if is_silent else (f"delivers, last seen {seen}", "green")


def _properties(node: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    labels, offset = read_object(node["labels"], "labels"), node["clock_offset_seconds"]
    known = {
        **{title: read(node) for title, read in SESSION_PROPERTIES.items()},
        "Labels": " ".join(f"{name}={value}" for name, value in labels.items()),
        "Agent": node["agent_version"],
        "Sampled at": None if node["rate_hz"] is None else f"{node['rate_hz']:g} Hz",
        "UUID": node["node_uuid"],
        "Clock": f"{describe_offset(offset)}; set the clock" if is_clock_wrong(offset) else None,
        "Identity": shared_identity(node["same_identity"]) if node["same_identity"] else None,
    }
    yield from ((title, str(value)) for title, value in known.items() if value not in (None, ""))
    for device in devices:
        values = (
            f"{title} {value}" for title, read in DEVICE_PROPERTIES.items() if (value := read(device)) is not None
        )
        instance = "" if device["parent_device_id"] is None else " (MIG instance)"
        yield f"GPU {device['device_index']}{instance}", ", ".join((str(device["name"]), *values, str(device["uuid"])))


def _run(run: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    took = run["started_at"] and ((run["ended_at"] or now) - run["started_at"]).total_seconds()
    return {
        "run_id": run["run_id"],
        "address": f"/runs/{quote(run['run_id'], safe='')}",
        "workload": run["workload"] or ABSENT,
        "status": run["status"] or ABSENT,
        "style": STATUSES.get(run["status"] or ""),
        "started": ago(run["started_at"], now) if run["started_at"] else ABSENT,
        "took": duration(took) if took is not None else ABSENT,
        "reason": run["reason"] or "",
    }


_NODE = f"""
WITH {PRESENT_SQL}
SELECT
    * EXCLUDE (same_identity) REPLACE (CAST(labels AS VARCHAR) AS labels), coalesce(same_identity, []) AS same_identity,
    (SELECT list(session_id)[1:100] FROM rivals WHERE rivals.node_id = present.node_id) AS rivals
FROM present LEFT JOIN twins USING (node_id) WHERE node_uuid = ? LIMIT 1"""  # noqa: S608 - no value in it

_DEVICES = """
FROM session_devices WHERE session_id = ?
QUALIFY row_number() OVER (PARTITION BY device_id ORDER BY time DESC) = 1
ORDER BY device_index, parent_device_id NULLS FIRST, uuid"""

_RUNS = f"""
SELECT run_id, workload, status, reason, started_at, ended_at FROM runs
WHERE run_id IN (SELECT run_id FROM run_parts WHERE node_id = ?)
ORDER BY coalesce(started_at, queued_at) DESC, run_id LIMIT {_MOST_RUNS + 1}"""  # noqa: S608 - a number of ours

_MEANS = """
SELECT {key} AS part, CAST(floor(epoch(time - CAST(? AS TIMESTAMP)) / ?) AS INTEGER) AS bucket, {means}
FROM {table}
WHERE node_id = ? AND NOT list_contains(CAST(? AS BIGINT[]), session_id)
    AND time BETWEEN CAST(? AS TIMESTAMP) AND CAST(? AS TIMESTAMP)
GROUP BY ALL ORDER BY part, bucket"""
