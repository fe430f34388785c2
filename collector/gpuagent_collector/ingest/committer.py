"""The heart of exactly-once: rows and marks go into the store in one transaction, or not at all."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded, Decoder
from gpuagent_collector.ingest.messages import COMMITTED, DUPLICATE, Message, Outcome, Verdict, rejected
from gpuagent_collector.ingest.rows import ended_runs, gap_rows, in_one_piece, mark_rows
from gpuagent_collector.store.columns import agent_tables

_LOG = logging.getLogger(__name__)

_REPORTED_NAMES = 1000
"""After this many names of unknown tables and columns no more are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of the messages of one group, in their order, which runs have ended in it, and rows by table."""

    outcomes: Sequence[Outcome]
    ended_runs: Sequence[str]
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    message: Message
    outcome: Outcome
    decoded: Decoded | None = None


class Committer:
    """Writes groups of messages. It belongs to the one thread that writes the store.

    Raises:
        duckdb.Error: the marks cannot be read.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, now: Callable[[], datetime]) -> None:
        self._connection = connection
        self._now = now
        tables = agent_tables(connection)
        self._decoder = Decoder(tables)
        self._json_columns = {
            table: frozenset(name for name, data_type in columns.items() if data_type == "JSON")
            for table, columns in tables.items()
        }
        self._marks: dict[int, int] | None = load_marks(connection)
        self._unknown: set[str] = set()

    def marks(self, session_ids: Iterable[int]) -> dict[int, int]:
        """Return the highest committed number of those of the sessions that have one."""
        marks = self._current_marks()
        return {session_id: marks[session_id] for session_id in session_ids if session_id in marks}

    def commit(self, messages: Sequence[Message]) -> Receipt:
        """Write the messages in one transaction, and mark them as committed in the same.

        A message that cannot be stored is rejected alone: its neighbours are stored.

        Raises:
            duckdb.Error: the store failed. Nothing is written, or it is not known; calling again with the same messages
                is right in both cases.
        """
        checked = self._check(messages)
        try:
            return self._write(checked)
        except duckdb.DataError as error:
            # Something that only the store itself could find.
            if len(messages) > 1:
                return self._commit_halves(messages)
            return self._write([_Checked(message=messages[0], outcome=rejected(str(error).splitlines()[0]))])

    def _commit_halves(self, messages: Sequence[Message]) -> Receipt:
        middle = len(messages) // 2
        halves = [self.commit(messages[:middle]), self.commit(messages[middle:])]
        return Receipt(
            outcomes=[outcome for half in halves for outcome in half.outcomes],
            ended_runs=[run_id for half in halves for run_id in half.ended_runs],
            rows=sum((Counter(half.rows) for half in halves), Counter()),
        )

    def _current_marks(self) -> dict[int, int]:
        if self._marks is None:
            # What failed may have left its transaction behind, in which nothing works any more.
            with suppress(duckdb.Error):
                self._connection.rollback()
            self._marks = load_marks(self._connection)
        return self._marks

    def _check(self, messages: Sequence[Message]) -> list[_Checked]:
        marks = dict(self.marks({message.session_id for message in messages}))
        checked = []
        for message in messages:
            if message.number <= marks.get(message.session_id, 0):
                checked.append(_Checked(message=message, outcome=DUPLICATE))
            else:
                marks[message.session_id] = message.number
                checked.append(self._decode(message))
        return checked

    def _decode(self, message: Message) -> _Checked:
        try:
            decoded = self._decoder.decode(message.records, session_id=message.session_id, node_id=message.node_id)
        except RejectedRecordsError as error:
            return _Checked(message=message, outcome=rejected(str(error)))
        self._report_unknown(decoded.unknown)
        return _Checked(message=message, outcome=COMMITTED, decoded=decoded)

    def _report_unknown(self, names: frozenset[str]) -> None:
        news = names - self._unknown
        if news and len(self._unknown) < _REPORTED_NAMES:
            self._unknown |= news
            _LOG.warning(
                "tables and columns that this collector does not know are left out; upgrade it: %s",
                ", ".join(sorted(news)[:10]),
            )

    def _write(self, checked: Sequence[_Checked]) -> Receipt:
        news = [each for each in checked if each.outcome is not DUPLICATE]
        tables = _by_table(each.decoded for each in news if each.decoded is not None)
        if news:
            self._transact(tables, news)
        return Receipt(
            outcomes=[each.outcome for each in checked],
            ended_runs=ended_runs(tables.get("run_states")),
            rows={name: rows.num_rows for name, rows in tables.items()},
        )

    def _transact(self, tables: Mapping[str, pa.Table], news: Sequence[_Checked]) -> None:
        now = self._now()
        marks = {each.message.session_id: each.message.number for each in news}
        rejections = [(each.message, each.outcome.reason) for each in news if each.outcome.verdict is Verdict.REJECTED]
        known_marks, self._marks = self._current_marks(), None  # unknown until the commit has returned
        self._connection.begin()
        try:
            for name, rows in tables.items():
                self._insert(name, rows)
            if rejections:
                self._insert("gaps", gap_rows(rejections, now))
            self._insert("marks", mark_rows(marks, now))
            self._connection.commit()
        except BaseException:
            with suppress(duckdb.Error):
                self._connection.rollback()
            raise
        self._marks = known_marks | marks

    def _insert(self, name: str, rows: pa.Table) -> None:
        self._connection.register("incoming", rows)
        try:
            self._connection.execute(f'INSERT INTO "{name}" BY NAME SELECT {self._selected(name, rows)} FROM incoming')  # noqa: S608 - names of the schema
        finally:
            self._connection.unregister("incoming")

    def _selected(self, name: str, rows: pa.Table) -> str:
        """Return what to select for a table: text that is no JSON is kept as a JSON string."""
        columns = sorted(self._json_columns.get(name, frozenset()) & set(rows.column_names))
        kept = (
            f'CASE WHEN json_valid("{each}") THEN "{each}" ELSE to_json("{each}") END AS "{each}"' for each in columns
        )
        return f"* REPLACE ({', '.join(kept)})" if columns else "*"


def load_marks(connection: duckdb.DuckDBPyConnection) -> dict[int, int]:
    """Return the highest committed number of every session."""
    return dict(connection.execute("SELECT session_id, max(number) FROM marks GROUP BY session_id").fetchall())


def _by_table(decoded: Iterable[Decoded]) -> dict[str, pa.Table]:
    pieces: dict[str, list[pa.Table]] = {}
    for each in decoded:
        for name, tables in each.tables.items():
            pieces.setdefault(name, []).extend(tables)
    return {name: in_one_piece(tables) for name, tables in pieces.items()}
