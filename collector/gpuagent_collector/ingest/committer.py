"""Exactly-once storage: rows and marks enter the store in one transaction, or not at all."""

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
from gpuagent_collector.ingest.checks import COUNTS, check_rows, drop_impossible
from gpuagent_collector.ingest.decode import STORED_TIME, Decoded, Decoder, Piece, join, split_pieces
from gpuagent_collector.ingest.messages import COMMITTED, DISOWNED, DUPLICATE, Message, Outcome, Verdict
from gpuagent_collector.ingest.owners import RunOwners
from gpuagent_collector.ingest.ownership import Ownership
from gpuagent_collector.store.columns import LongestTexts, agent_tables, insert_from
from gpuagent_collector.store.transactions import is_conflict, retry_conflicts, transaction
from gpuagent_common.statuses import FINAL_STATUSES

_LOG = logging.getLogger(__name__)

# Of a text that should be JSON and is not: as JSON it can take six bytes a character.
_NO_JSON_CHARACTERS = 1000

# Of DuckDB's message, which may repeat a text of the rows.
_REASON_CHARACTERS = 500

# After this many names of unknown tables and columns no more are reported.
_REPORTED_NAMES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The outcomes of a group's messages in their order, the runs that ended in it, and its rows by table."""

    outcomes: Sequence[Outcome]
    ended_runs: Sequence[str]
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    message: Message
    outcome: Outcome
    decoded: Decoded | None = None


class _LostSessionsError(Exception):
    """Another collector has taken over sessions of the group to be written."""


class Committer:
    """A writer of groups of messages. It belongs to the one thread that writes the store.

    Raises duckdb.Error: the marks cannot be read.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        *,
        now: Callable[[], datetime],
        ownership: Ownership | None = None,
        longest_texts: LongestTexts | None = None,
    ) -> None:
        """Prepare for a store; no `ownership`: it is ours alone. No `longest_texts`: nobody asks for them."""
        self._connection = connection
        self._now = now
        self._ownership = ownership or Ownership()
        self._longest_texts = longest_texts or LongestTexts()
        tables = agent_tables(connection)
        self._decoder = Decoder(tables)
        self._owners = RunOwners(connection)
        self._json_columns = {
            table: {name for name, data_type in columns.items() if data_type == "JSON"}
            for table, columns in tables.items()
        }
        # None after a failure, when it is unknown what was committed.
        self._marks: dict[int, int] | None = load_marks(connection)
        self._unknown: set[str] = set()

    def claim(self, session_ids: Iterable[int]) -> dict[int, int]:
        """Make these sessions ours, and return the highest committed number of those that have one.

        Raises duckdb.Error: the store failed.
        """
        wanted = tuple(session_ids)
        known_marks, self._marks = self._current_marks(), None
        taken = self._ownership.claim(wanted)
        self._marks = marks = known_marks | (load_marks(self._connection, taken) if taken else {})
        return {session_id: marks[session_id] for session_id in wanted if session_id in marks}

    def commit(self, messages: Sequence[Message]) -> Receipt:
        """Write the messages and their marks in one transaction.

        A message that cannot be stored is rejected alone, and its neighbours are stored. Messages of sessions that are
        not ours are skipped. Raises duckdb.Error: the store failed. Nothing is written, or it is unknown; a retry with
        the same messages is right in both cases.
        """
        try:
            return self._write_owned(lambda: self._check(messages))
        except duckdb.DataError as error:
            # Only the store itself could find this fault.
            if len(messages) > 1:
                middle = len(messages) // 2
                halves = [self.commit(messages[:middle]), self.commit(messages[middle:])]
                return Receipt(
                    outcomes=[outcome for half in halves for outcome in half.outcomes],
                    ended_runs=[run_id for half in halves for run_id in half.ended_runs],
                    rows=sum((Counter(half.rows) for half in halves), Counter()),
                )
            reason = str(error).splitlines()[0][:_REASON_CHARACTERS]
            return self._write_owned(
                lambda: [
                    _reject(each.message, reason) if each.outcome is COMMITTED else each
                    for each in self._check(messages)
                ]
            )

    def _current_marks(self) -> dict[int, int]:
        if self._marks is None:
            # A failure may have left its transaction open, in which every further statement fails.
            with suppress(duckdb.Error):
                self._connection.rollback()
            self._ownership.settle()
            self._marks = load_marks(self._connection)
        return self._marks

    def _check(self, messages: Sequence[Message]) -> list[_Checked]:
        # Marks cover every session that ever was: a copy of them for each group would cost more each month.
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
        self._owners.load([each.decoded for each in checked if each.decoded is not None])
        for place, each in enumerate(checked):
            if each.decoded is not None:
                try:
                    self._owners.check(each.decoded)
                except RejectedRecordsError as error:
                    checked[place] = _reject(each.message, str(error))
        return checked

    def _decode(self, message: Message) -> _Checked:
        try:
            decoded = self._decoder.decode(message.records, session_id=message.session_id, node_id=message.node_id)
            for column, size_bytes in check_rows(decoded).items():
                self._longest_texts.note(column, size_bytes)
        except RejectedRecordsError as error:
            return _reject(message, str(error))
        news = decoded.unknown - self._unknown
        if news and len(self._unknown) < _REPORTED_NAMES:
            self._unknown |= news
            names = ", ".join(sorted(news)[:10])
            _LOG.warning("ignoring tables and columns that this collector does not know; upgrade it: %s", names)
        return _Checked(message=message, outcome=COMMITTED, decoded=decoded)

    def _write_owned(self, check: Callable[[], Sequence[_Checked]]) -> Receipt:
        """Write the result of `check`; repeat both after a conflict, or after another collector's takeover."""
        while True:
            try:
                return retry_conflicts(lambda: self._write(check()))
            except _LostSessionsError:
                _LOG.info("another collector has taken over sessions, and writes the rest of them")

    def _write(self, checked: Sequence[_Checked]) -> Receipt:
        news = [each for each in checked if each.outcome.verdict in (Verdict.COMMITTED, Verdict.REJECTED)]
        pieces: dict[str, list[Piece]] = {}
        for decoded in (each.decoded for each in news if each.decoded is not None):
            for name, rows in decoded.tables.items():
                pieces.setdefault(name, []).extend(rows)
        if news:
            self._transact(pieces, news)
        return Receipt(
            outcomes=[each.outcome for each in checked],
            ended_runs=_find_ended_runs(pieces.get("run_states", ())),
            rows={name: sum(piece.rows for piece in rows) for name, rows in pieces.items()},
        )

    def _transact(self, pieces: Mapping[str, Sequence[Piece]], news: Sequence[_Checked]) -> None:
        now = self._now()
        marks = {each.message.session_id: each.message.number for each in news}
        refused = [each for each in news if each.outcome.verdict is Verdict.REJECTED]
        known_marks, self._marks = self._current_marks(), None
        try:
            with transaction(self._connection):
                self._ownership.sign()
                if not all(map(self._ownership.owns, marks)):
                    raise _LostSessionsError
                counts: list[Mapping[str, object]] = []
                for name, rows in pieces.items():
                    for part in split_pieces(rows):
                        found = drop_impossible(name, join(part))
                        self._insert(name, found.rows)
                        counts += found.counts
                if counts:
                    self._insert(COUNTS, pa.Table.from_pylist(counts))
                if refused:
                    self._insert("gaps", _make_gaps(refused, now))
                columns = {
                    "session_id": pa.array(list(marks.keys()), pa.int64()),
                    "number": pa.array(list(marks.values()), pa.uint64()),
                    "committed_at": pa.array([now] * len(marks), STORED_TIME),
                }
                self._insert("marks", pa.table(columns))
        except (duckdb.Error, _LostSessionsError) as error:
            if is_conflict(error) or isinstance(error, _LostSessionsError):
                self._marks = known_marks  # nothing was written
            raise
        known_marks.update(marks)
        self._marks = known_marks

    def _insert(self, name: str, rows: pa.Table) -> None:
        # Text that is not JSON is stored as a JSON string.
        columns = sorted(self._json_columns.get(name, set()) & set(rows.column_names))
        kept = (
            f'CASE WHEN json_valid("{each}") THEN "{each}"'
            f' ELSE to_json(left("{each}", {_NO_JSON_CHARACTERS})) END AS "{each}"'
            for each in columns
        )
        selected = f"* REPLACE ({', '.join(kept)})" if columns else "*"
        self._connection.register("incoming", rows)
        try:
            self._connection.execute(insert_from("incoming", name, selected))
        finally:
            self._connection.unregister("incoming")


def _reject(message: Message, reason: str) -> _Checked:
    return _Checked(message=message, outcome=Outcome(verdict=Verdict.REJECTED, reason=reason))


def load_marks(connection: duckdb.DuckDBPyConnection, session_ids: Iterable[int] | None = None) -> dict[int, int]:
    """Return the highest committed number of every session, or of these."""
    where, wanted = ("", []) if session_ids is None else ("WHERE session_id = ANY(?)", [list(session_ids)])
    sql = f"SELECT session_id, max(number) FROM marks {where} GROUP BY session_id"  # noqa: S608 - constant texts
    return dict(connection.execute(sql, wanted).fetchall())


def _find_ended_runs(states: Iterable[Piece]) -> list[str]:
    ended: dict[str, None] = {}
    for piece in states:
        if {"run_id", "status"} <= piece.texts.keys():
            are_final = pc.is_in(piece.texts["status"], pa.array(FINAL_STATUSES))
            named = piece.texts["run_id"].filter(are_final).to_pylist()
            ended |= dict.fromkeys(run_id for run_id in named if run_id is not None)
    return list(ended)


def _make_gaps(refused: Sequence[_Checked], now: datetime) -> pa.Table:
    count = len(refused)
    return pa.table(
        {
            "session_id": pa.array([each.message.session_id for each in refused], pa.int64()),
            "node_id": pa.array([each.message.node_id for each in refused], pa.int64()),
            "time": pa.array([now] * count, STORED_TIME),
            "reason": pa.array(["rejected"] * count),
            "messages": pa.array([1] * count, pa.int64()),
            "detail": pa.array([f"message {each.message.number}: {each.outcome.reason}" for each in refused]),
        }
    )
