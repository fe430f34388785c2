"""Selection of rows that belong to runs or nodes, by columns, and by windows of time."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuagent_collector.exchange.tables import ExchangedTable
from gpuagent_collector.query.ask import Ask

# Text after WHERE, and the values of its `?`.
Condition = tuple[str, list[str]]

# End, in microseconds, of a run that has not ended: far beyond any clock.
_UNENDED = 2**62

# Lists travel as one JSON text: a collector takes scalars alone, and a run's name may contain any separator.
_TEXTS = "(SELECT unnest(from_json(?::VARCHAR, '[\"VARCHAR\"]')))"
_NUMBERS = "(SELECT unnest(from_json(?::VARCHAR, '[\"BIGINT\"]')))"
_WINDOWS = """(
    SELECT node AS node_id, make_timestamp(since) AS from_time, make_timestamp("until") AS to_time
    FROM (
        SELECT unnest(
            from_json(?::VARCHAR, '[{"node": "BIGINT", "since": "BIGINT", "until": "BIGINT"}]'), recursive := true
        )
    )
)"""

# Windows do not touch, so only the last one that began before a sample can hold it.
_IN_WINDOWS = """rowid IN (
    SELECT sample.rowid
    FROM (SELECT rowid, node_id, "{clock}" FROM "{table}" WHERE {within}) AS sample
    ASOF JOIN {windows} AS life ON sample.node_id = life.node_id AND sample."{clock}" >= life.from_time
    WHERE sample."{clock}" < life.to_time
)"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Window:
    """A stretch of time on one node, in microseconds since the Unix epoch; `end_micros` is exclusive."""

    node_id: int
    start_micros: int
    end_micros: int


def join_windows(windows: Iterable[Window]) -> list[Window]:
    """Return the same time in as few windows as possible: sorted, none touching another."""
    result: list[Window] = []
    for window in sorted(windows):
        last = result[-1] if result else None
        if last and last.node_id == window.node_id and window.start_micros <= last.end_micros:
            end_micros = max(last.end_micros, window.end_micros)
            result[-1] = Window(node_id=last.node_id, start_micros=last.start_micros, end_micros=end_micros)
        else:
            result.append(window)
    return result


def subtract_windows(windows: Iterable[Window], others: Iterable[Window]) -> list[Window]:
    """Return the time of `windows` that is in none of `others`."""
    remaining = join_windows(windows)
    for other in join_windows(others):
        remaining = [piece for window in remaining for piece in _subtract(window, other)]
    return remaining


def _subtract(window: Window, other: Window) -> Iterable[Window]:
    if window.node_id != other.node_id:
        yield window
        return
    for start, end in (
        (window.start_micros, min(window.end_micros, other.start_micros)),
        (max(window.start_micros, other.end_micros), window.end_micros),
    ):
        if start < end:
            yield Window(node_id=window.node_id, start_micros=start, end_micros=end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """All rows of all tables."""

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:  # noqa: ARG002 - same for every table
        """Return `within`."""
        return within, []


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRuns:
    """Rows of runs, samples of their nodes in their time, and descriptions of agent processes.

    A row that names another run never belongs here, even if it was sampled at the same time.
    """

    run_ids: Collection[str]
    # No window touches another.
    windows: Sequence[Window]
    session_ids: Collection[int] = ()

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:
        """Return the condition that selects these rows of `table` where `within` is true."""
        if table.is_of_sessions:
            return f"{within} AND session_id IN {_NUMBERS}", [json.dumps(list(self.session_ids))]
        run_ids = json.dumps(list(self.run_ids))
        if not table.is_samples:
            return f"{within} AND run_id IN {_TEXTS}", [run_ids]
        windows = json.dumps(
            [
                {"node": window.node_id, "since": window.start_micros, "until": window.end_micros}
                for window in self.windows
            ]
        )
        sampled = _IN_WINDOWS.format(table=table.name, clock=table.clock, within=within, windows=_WINDOWS)
        if not table.is_of_runs:
            return f"{within} AND {sampled}", [windows]
        return f"{within} AND (run_id IN {_TEXTS} OR run_id IS NULL AND {sampled})", [run_ids, windows]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfNodes:
    """All rows that came from nodes, and every row of the runs that started on them."""

    node_ids: Collection[int]
    run_ids: Collection[str]

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:
        """Return the condition that selects these rows of `table` where `within` is true."""
        parts = {
            f"{column} IN {values}": json.dumps(list(keys))
            for column, values, keys in (("node_id", _NUMBERS, self.node_ids), ("run_id", _TEXTS, self.run_ids))
            if column in table.types
        }
        return f"{within} AND ({' OR '.join(parts) or 'false'})", list(parts.values())


Belongings = Everything | OfRuns | OfNodes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """A choice of runs: those that pass every given filter. An empty or missing filter passes all."""

    run_ids: Sequence[str] = ()
    experiments: Sequence[str] = ()
    platforms: Sequence[str] = ()
    # Queued at this moment (UTC) or later.
    since: datetime | None = None

    def condition(self) -> Condition:
        """Return the condition that selects these rows of the view `runs`."""
        among = {"run_id": self.run_ids, "experiment": self.experiments, "platform": self.platforms}
        parts = {f"{column} IN {_TEXTS}": json.dumps(list(values)) for column, values in among.items() if values}
        if self.since:
            parts["queued_at >= ?::TIMESTAMP"] = self.since.isoformat()
        return " AND ".join(parts) or "true", list(parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """A run on one of its nodes, and its window there; None where the store lacks node or time."""

    run_id: str
    window: Window | None


_PLACES = """
WITH chosen AS (
    SELECT run_id, node_id, epoch_us(coalesce(started_at, queued_at)) AS start_micros, epoch_us(ended_at) AS end_micros
    FROM runs WHERE {condition}
), places AS (
    SELECT run_id, node_id FROM chosen
    UNION
    SELECT run_id, run_requests.node_id FROM run_requests SEMI JOIN chosen USING (run_id)
    UNION
    SELECT run_id, run_devices.node_id FROM run_devices SEMI JOIN chosen USING (run_id)
)
SELECT DISTINCT run_id, places.node_id, start_micros, end_micros FROM places JOIN chosen USING (run_id)
"""


def find_places(ask: Ask, chosen: RunFilter, *, margin_micros: int = 0) -> list[RunPlace]:
    """Return where and when these runs ran, with `margin_micros` added at both ends."""
    condition, values = chosen.condition()
    places = []
    for row in ask(_PLACES.format(condition=condition), values):
        node_id, start_micros, end_micros = row["node_id"], row["start_micros"], row["end_micros"]
        window = None
        if node_id is not None and start_micros is not None:
            last = _UNENDED if end_micros is None else max(start_micros, end_micros)
            start_micros, end_micros = start_micros - margin_micros, last + margin_micros + 1
            window = Window(node_id=node_id, start_micros=start_micros, end_micros=end_micros)
        places.append(RunPlace(run_id=row["run_id"], window=window))
    return places
