"""The heart of exactly-once: rows and marks go into the store in one transaction, or not at all."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded, Decoder
from gpuagent_collector.ingest.messages import COMMITTED, DISOWNED, DUPLICATE, Message, Outcome, Verdict, rejected
from gpuagent_collector.ingest.names import check_names
from gpuagent_collector.ingest.owners import RunOwners
from gpuagent_collector.ingest.ownership import Ownership, SoleOwnership
from gpuagent_collector.ingest.rows import ended_runs, gap_rows, in_one_piece, mark_rows
from gpuagent_collector.store.columns import agent_tables
from gpuagent_collector.store.transactions import is_conflict, transaction, until_first

_LOG = logging.getLogger(__name__)

# After this many names of unknown tables and columns no more are reported.
_REPORTED_NAMES = 1000


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


class _LostSessionsError(Exception):
    """Another collector has taken over some of the sessions of the group that was to be written."""


class Committer:
    """Writes groups of messages of sessions that are ours. It belongs to the one thread that writes the store.

    Raises:
        duckdb.Error: the marks cannot be read.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        *,
        now: Callable[[], datetime],
        ownership: Ownership | None = None,
    ) -> None:
        """Take who says whose a session is; None: the store is ours alone."""
        self._connection = connection
        self._now = now
        self._ownership = ownership or SoleOwnership()
        tables = agent_tables(connection)
        self._decoder = Decoder(tables)
        self._owners = RunOwners(connection)
        self._json_columns = {
            table: frozenset(name for name, data_type in columns.items() if data_type == "JSON")
            for table, columns in tables.items()
        }
        self._marks: dict[int, int] | None = load_marks(connection)
        self._unknown: set[str] = set()

    def claim(self, session_ids: Iterable[int]) -> dict[int, int]:
        """Make these sessions ours, and return the highest committed number of those that have one.

        Raises:
            duckdb.Error: the store failed.
        """
        wanted = tuple(session_ids)
        known_marks, self._marks = self._current_marks(), None  # unknown until it is known whose the sessions are
        taken = self._ownership.claim(wanted)
        self._marks = marks = known_marks | (load_marks(self._connection, taken) if taken else {})
        return {session_id: marks[session_id] for session_id in wanted if session_id in marks}

    def commit(self, messages: Sequence[Message]) -> Receipt:
        """Write the messages in one transaction, and mark them as committed in the same.

        A message that cannot be stored is rejected alone: its neighbours are stored. One of a session that is not ours
        is left.

        Raises:
            duckdb.Error: the store failed. Nothing is written, or it is not known; calling again with the same messages
                is right in both cases.
        """
        try:
            return self._write_ours(lambda: self._check(messages))
        except duckdb.DataError as error:
            # Something that only the store itself could find.
            if len(messages) > 1:
                return self._commit_halves(messages)
            refused = rejected(str(error).splitlines()[0])
            return self._write_ours(lambda: [_refuse(each, refused) for each in self._check(messages)])

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
            self._ownership.settle()
            self._marks = load_marks(self._connection)
        return self._marks

    def _check(self, messages: Sequence[Message]) -> list[_Checked]:
        # Marks are of every session that there ever was: a copy of them for each group would cost more each month.
        known, marks = self._current_marks(), dict[int, int]()
        checked = []
        for message in messages:
            if not self._ownership.owns(message.session_id):
                checked.append(_Checked(message=message, outcome=DISOWNED))
            elif message.number <= marks.get(message.session_id, known.get(message.session_id, 0)):
                checked.append(_Checked(message=message, outcome=DUPLICATE))
            else:
                marks[message.session_id] = message.number
                checked.append(self._decode(message))
        return checked

    def _decode(self, message: Message) -> _Checked:
        try:
            decoded = self._decoder.decode(message.records, session_id=message.session_id, node_id=message.node_id)
            check_names(decoded)
            self._owners.check(decoded, message.node_id)
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

    def _write_ours(self, check: Callable[[], Sequence[_Checked]]) -> Receipt:
        """Write what `check` returns; while others come first, or take sessions over, let it look again."""
        while True:
            try:
                return until_first(lambda: self._write(check()))
            except _LostSessionsError:
                _LOG.info("another collector has taken over sessions; what is left of them is its to write")

    def _write(self, checked: Sequence[_Checked]) -> Receipt:
        news = [each for each in checked if each.outcome.verdict in (Verdict.COMMITTED, Verdict.REJECTED)]
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
        try:
            with transaction(self._connection):
                self._sign(marks)
                for name, rows in tables.items():
                    self._insert_sessions(rows) if name == "sessions" else self._insert(name, rows)
                if rejections:
                    self._insert("gaps", gap_rows(rejections, now))
                self._insert("marks", mark_rows(marks, now))
        except (duckdb.Error, _LostSessionsError) as error:
            if is_conflict(error) or isinstance(error, _LostSessionsError):
                self._marks = known_marks  # nothing was written
            raise
        known_marks.update(marks)
        self._marks = known_marks

    def _sign(self, session_ids: Iterable[int]) -> None:
        self._ownership.sign()
        if not all(map(self._ownership.owns, session_ids)):
            raise _LostSessionsError

    def _insert_sessions(self, rows: pa.Table) -> None:
        """Insert sessions. A goodbye, the second record of a session, ends the stored one: readers expect one row."""
        if "ended_at" not in rows.column_names:
            return self._insert("sessions", rows)
        has_ended = pc.is_valid(rows["ended_at"])
        self._insert("sessions", rows.filter(pc.invert(has_ended)))
        goodbyes = rows.filter(has_ended)
        for number, goodbye in enumerate(goodbyes.select(["ended_at", "session_id"]).to_pylist()):
            stored = "SELECT 1 FROM sessions WHERE session_id = ?"
            if self._connection.execute(stored, [goodbye["session_id"]]).fetchone():
                update = "UPDATE sessions SET ended_at = ? WHERE session_id = ?"
                self._connection.execute(update, [goodbye["ended_at"], goodbye["session_id"]])
            else:
                self._insert("sessions", goodbyes.slice(number, 1))
        return None

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


def load_marks(connection: duckdb.DuckDBPyConnection, session_ids: Iterable[int] | None = None) -> dict[int, int]:
    """Return the highest committed number of every session, or of these."""
    where, wanted = ("", []) if session_ids is None else ("WHERE session_id = ANY(?)", [list(session_ids)])
    sql = f"SELECT session_id, max(number) FROM marks {where} GROUP BY session_id"  # noqa: S608 - words of ours
    return dict(connection.execute(sql, wanted).fetchall())


def _refuse(checked: _Checked, outcome: Outcome) -> _Checked:
    return _Checked(message=checked.message, outcome=outcome) if checked.outcome is COMMITTED else checked


def _by_table(decoded: Iterable[Decoded]) -> dict[str, pa.Table]:
    pieces: dict[str, list[pa.Table]] = {}
    for each in decoded:
        for name, tables in each.tables.items():
            pieces.setdefault(name, []).extend(tables)
    return {name: in_one_piece(tables) for name, tables in pieces.items()}
