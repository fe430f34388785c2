"""Which rows belong to which runs, told by the tables' columns."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpuagent_collector.exchange.tables import ExchangedTable
from gpuagent_collector.exchange.windows import Window
from gpuagent_collector.query.ask import Ask

# What stands behind WHERE, and the values of its `?`.
Condition = tuple[str, list[str]]

# The end, in microseconds, of what has not ended: far beyond any clock.
_UNENDED = 2**62

_TEXTS = "(SELECT unnest(from_json(?::VARCHAR, '[\"VARCHAR\"]')))"
_NUMBERS = "(SELECT unnest(from_json(?::VARCHAR, '[\"BIGINT\"]')))"
_WINDOWS = """(
    SELECT unnest(node) AS node_id, make_timestamp(unnest(since)) AS from_time, make_timestamp(unnest(until)) AS to_time
    FROM (SELECT unnest(from_json(?::VARCHAR, '{"node": ["BIGINT"], "since": ["BIGINT"], "until": ["BIGINT"]}')))
)"""

# Windows do not touch, so the last one that began before a sample is the only one that can hold it.
_IN_WINDOWS = """rowid IN (
    SELECT sample.rowid
    FROM (SELECT rowid, node_id, "{clock}" FROM "{table}" WHERE {within}) AS sample
    ASOF JOIN {windows} AS life ON sample.node_id = life.node_id AND sample."{clock}" >= life.from_time
    WHERE sample."{clock}" < life.to_time
)"""


class Belongings(Protocol):
    """Tells which rows are meant."""

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:
        """Return what the rows of `table` that are meant, and for which `within` is true, have in common."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """All rows there are."""

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:  # noqa: ARG002 - every table's
        """Return `within`."""
        return within, []


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRuns:
    """The rows of runs, what was sampled on their nodes in their time, and what describes agent processes.

    A row that names another run never belongs here, though it may have been sampled at the same time.
    """

    run_ids: Collection[str]
    # None of them touches another.
    windows: Sequence[Window]
    session_ids: Collection[int] = ()

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:
        """Return what tells these rows of `table` from others."""
        if table.is_of_sessions:
            return f"{within} AND session_id IN {_NUMBERS}", [json.dumps(list(self.session_ids))]
        own, sampled = (
            f"run_id IN {_TEXTS}",
            _IN_WINDOWS.format(table=table.name, clock=table.clock, within=within, windows=_WINDOWS),
        )
        run_ids, windows = json.dumps(list(self.run_ids)), _windows_json(self.windows)
        if not table.is_samples:
            return f"{within} AND {own}", [run_ids]
        if not table.is_of_runs:
            return f"{within} AND {sampled}", [windows]
        return f"{within} AND ({own} OR run_id IS NULL AND {sampled})", [run_ids, windows]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfNodes:
    """Everything that came from nodes, and every row of the runs that started on them."""

    node_ids: Collection[int]
    run_ids: Collection[str]

    def condition(self, table: ExchangedTable, within: str = "true") -> Condition:
        """Return what tells these rows of `table` from others."""
        ways = {
            "node_id": (_NUMBERS, json.dumps(list(self.node_ids))),
            "run_id": (_TEXTS, json.dumps(list(self.run_ids))),
        }
        own = {column: way for column, way in ways.items() if column in table.types}
        either = " OR ".join(f"{column} IN {values}" for column, (values, _) in own.items()) or "false"
        return f"{within} AND ({either})", [value for _, value in own.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are meant: those that pass everything that is given. Empty, None: whichever."""

    run_ids: Sequence[str] = ()
    experiments: Sequence[str] = ()
    platforms: Sequence[str] = ()
    # Queued at this moment (UTC) or later.
    since: datetime | None = None

    def condition(self) -> Condition:
        """Return what these rows of the view `runs` have in common."""
        among = {"run_id": self.run_ids, "experiment": self.experiments, "platform": self.platforms}
        parts = {f"{column} IN {_TEXTS}": json.dumps(list(values)) for column, values in among.items() if values}
        if self.since:
            parts["queued_at >= ?::TIMESTAMP"] = self.since.isoformat()
        return " AND ".join(parts) or "true", list(parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """A run on one of its nodes, and when; None: the store does not say where or when."""

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


def places(ask: Ask, chosen: RunFilter, *, margin_micros: int = 0) -> list[RunPlace]:
    """Return where and when these runs ran; `margin_micros` are added at both ends."""
    condition, values = chosen.condition()
    return [_place(**row, margin_micros=margin_micros) for row in ask(_PLACES.format(condition=condition), values)]


def _place(
    *, run_id: str, node_id: int | None, start_micros: int | None, end_micros: int | None, margin_micros: int
) -> RunPlace:
    if node_id is None or start_micros is None:
        return RunPlace(run_id=run_id, window=None)
    last = _UNENDED if end_micros is None else max(start_micros, end_micros)
    window = Window(node_id=node_id, start_micros=start_micros - margin_micros, end_micros=last + margin_micros + 1)
    return RunPlace(run_id=run_id, window=window)


def _windows_json(windows: Sequence[Window]) -> str:
    return json.dumps(
        {
            "node": [window.node_id for window in windows],
            "since": [window.start_micros for window in windows],
            "until": [window.end_micros for window in windows],
        }
    )
