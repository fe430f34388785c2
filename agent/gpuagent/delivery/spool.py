"""The spool: a queue on the node's own disk of messages that no collector has committed yet.

Each agent process that opens a spool begins a session with a random identity and numbers its messages from 1. A spool
that was restored from a copy, cloned or moved to another node still holds its old messages under their old numbers.
Every new message belongs to a session that no collector has seen.
"""

import contextlib
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuagent.delivery.spool_file import SpoolError, connect, transaction
from gpuagent.sampling.rows import encode_records
from gpuagent.sources.source import Value
from gpuagent_common.keys import key, message_checksum

_PAGE = """
SELECT position, session_id, session_uuid, node_uuid, number, records, checksum, from_unix_nano, to_unix_nano
FROM messages LEFT JOIN sessions USING (session_id) WHERE position > ? ORDER BY position LIMIT ?
"""
_LAST_POSITION = "SELECT coalesce(max(position), 0) FROM messages"
_COUNT = "SELECT count(*) FROM messages"
_COVERED = "FROM messages WHERE session_id = ? AND number <= ?"

# Rows of one page when the whole spool is checked at its start.
_CHECKED_AT_ONCE = 100

# The most rejected messages that are kept for inspection.
_KEPT_REJECTIONS = 1000

# Share of the limit that is freed when the spool is full, so that gaps are few and long rather than many and short.
_DROPPED_AT_ONCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message to be spooled: serialised Records and the span of time that they cover."""

    records: bytes
    droppable: bool
    from_unix_nano: int
    to_unix_nano: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A spooled message. `position` orders the messages of all sessions as they were written."""

    position: int
    session_id: int
    number: int
    records: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An agent process that has messages here, and its node."""

    session_id: int
    session_uuid: str
    node_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The size of a spool. `oldest_unix_nano` is the begin of its oldest message; None: the spool is empty."""

    messages: int
    size_bytes: int
    limit_bytes: int
    oldest_unix_nano: int | None


class Spool:
    """A durable queue of numbered messages in one SQLite file. Safe to use from several threads.

    Raises (every method):
        SpoolError: SQLite could not read or write, such as for a full disk or a damaged file.
    """

    def __init__(self, file: Path, *, node_uuid: str, limit_bytes: int) -> None:
        self._lock = threading.Lock()
        self._limit_bytes = limit_bytes
        self._acknowledged: dict[int, int] = {}
        # New name of a damaged spool that was set aside; None: it was intact.
        self.damaged: Path | None = None
        self._connection = self._open_or_set_aside(file)
        session_uuid = str(uuid.uuid4())
        self.session = Session(session_id=key(session_uuid), session_uuid=session_uuid, node_uuid=node_uuid)
        with transaction(self._connection) as connection:
            connection.execute("DELETE FROM sessions WHERE session_id NOT IN (SELECT session_id FROM messages)")
            row = (self.session.session_id, session_uuid, node_uuid)
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?)", row)
        self._next_number = 1
        self._bytes = self._value("SELECT coalesce(sum(length(records)), 0) FROM messages")
        # Position of the latest message.
        self.last_position = self._value(_LAST_POSITION)
        # A session that the disk has changed must not be named to a collector, so all messages are read once.
        position = 0
        while rows := self._rows(_PAGE, (position, _CHECKED_AT_ONCE)):
            self._intact(rows)
            position = rows[-1][0]

    def _open_or_set_aside(self, file: Path) -> sqlite3.Connection:
        try:
            return connect(file)
        except sqlite3.DatabaseError:
            self.damaged = file.with_name(f"{file.name}.damaged-{time.time_ns()}")
            file.rename(self.damaged)
            for suffix in ("-wal", "-shm"):
                file.with_name(file.name + suffix).unlink(missing_ok=True)
            return connect(file)

    def append(
        self,
        entries: Sequence[Entry],
        *,
        opened: Mapping[str, Path] | None = None,
        offsets: Mapping[tuple[str, str], int] | None = None,
        closed: Iterable[str] = (),
    ) -> None:
        """Make `entries` durable, with the state of runs, in one transaction.

        Args:
            opened: run directories (by run) of which events are read from now on.
            offsets: bytes of the events file (run, file name) that have been read into `entries`.
        """
        with self._lock:
            acknowledged, self._acknowledged = self._acknowledged, {}
            try:
                with transaction(self._connection) as connection:
                    freed = _delete_acknowledged(connection, acknowledged)
                    added, wanted = list(entries), sum(len(entry.records) for entry in entries) - freed
                    if self._bytes + wanted > self._limit_bytes:
                        dropped, gap = _drop_oldest(connection, wanted + int(self._limit_bytes * _DROPPED_AT_ONCE))
                        freed += dropped
                        added += gap
                    _insert(connection, self.session, self._next_number, added)
                    opened_rows = [(run_id, str(path)) for run_id, path in (opened or {}).items()]
                    connection.executemany("INSERT OR REPLACE INTO open_runs VALUES (?, ?)", opened_rows)
                    offset_rows = [(*file, offset) for file, offset in (offsets or {}).items()]
                    connection.executemany("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)", offset_rows)
                    for run_id in closed:
                        connection.execute("DELETE FROM open_runs WHERE run_id = ?", (run_id,))
                        connection.execute("DELETE FROM offsets WHERE run_id = ?", (run_id,))
                    last_position = self._value(_LAST_POSITION)
            except SpoolError:
                self._acknowledged = {**acknowledged, **self._acknowledged}
                raise
            self._note_written(added, last_position, freed)

    def messages_after(self, position: int, *, limit: int) -> list[Message]:
        """Return up to `limit` unacknowledged messages after `position`, oldest first.

        Messages that the disk has changed are set aside, and a gap is spooled for them.
        """
        with self._lock:
            while rows := self._rows(_PAGE, (position, limit)):
                messages = [
                    Message(position=row[0], session_id=row[1], number=row[4], records=row[5])
                    for row in self._intact(rows)
                    if row[4] > self._acknowledged.get(row[1], 0)
                ]
                if messages:
                    return messages
                position = rows[-1][0]
        return []

    def _intact(self, rows: Sequence[Any]) -> list[Any]:
        """Return the rows of `_PAGE` that match their checksums; set the others aside, with a gap in their place."""
        damaged = [row for row in rows if message_checksum(*row[2:6]) != row[6]]
        if damaged:
            times = [value for row in damaged for value in row[7:] if isinstance(value, int)] or [time.time_ns()]
            detail = "the disk has changed them; the spool keeps them in its table rejected"
            gap = gap_entry(min(times), max(times), "spool_damaged", messages=len(damaged), detail=detail)
            with transaction(self._connection) as connection:
                freed = sum(_keep_apart(connection, row[0], "damaged on the disk") for row in damaged)
                _insert(connection, self.session, self._next_number, [gap])
                last_position = self._value(_LAST_POSITION)
            self._note_written([gap], last_position, freed)
        return [row for row in rows if row not in damaged]

    def _note_written(self, entries: Sequence[Entry], last_position: int, freed_bytes: int) -> None:
        self._next_number += len(entries)
        self.last_position = max(self.last_position, last_position)
        self._bytes += sum(len(entry.records) for entry in entries) - freed_bytes

    def acknowledge(self, marks: Mapping[int, int]) -> None:
        """Record that all up to `marks` (number by session) is committed; the next append deletes it."""
        with self._lock:
            for session_id, number in marks.items():
                self._acknowledged[session_id] = max(number, self._acknowledged.get(session_id, 0))

    def set_aside(self, session_id: int, number: int, reason: str) -> None:
        """Move a rejected message to its own table, so that it is neither lost nor sent again."""
        with self._lock:
            rows = self._rows("SELECT position FROM messages WHERE session_id = ? AND number = ?", (session_id, number))
            with transaction(self._connection) as connection:
                self._bytes -= sum(_keep_apart(connection, position, reason) for (position,) in rows)

    def sessions(self) -> list[Session]:
        """Return every session that may have messages here, this process's own last."""
        with self._lock:
            rows = self._rows(
                "SELECT session_id, session_uuid, node_uuid FROM sessions WHERE session_id <> ? "
                "AND session_id IN (SELECT session_id FROM messages)",
                (self.session.session_id,),
            )
        return [*(Session(session_id=row[0], session_uuid=row[1], node_uuid=row[2]) for row in rows), self.session]

    def waiting(self) -> int:
        """Return the number of unacknowledged messages."""
        with self._lock:
            gone = sum(self._value(f"SELECT count(*) {_COVERED}", mark) for mark in self._acknowledged.items())
            return self._value(_COUNT) - gone

    def extent(self) -> Extent:
        """Return the size; acknowledged messages count until the next append."""
        with self._lock:
            oldest = self._rows("SELECT from_unix_nano FROM messages ORDER BY position LIMIT 1", ())
            return Extent(
                messages=self._value(_COUNT),
                size_bytes=self._bytes,
                limit_bytes=self._limit_bytes,
                oldest_unix_nano=oldest[0][0] if oldest else None,
            )

    def open_runs(self) -> dict[str, tuple[Path, dict[str, int]]]:
        """Return directory and events offsets (bytes by file name) of each run that has not been closed."""
        with self._lock:
            # As text whatever the disk has made of them; a folder that is not there is a run that is lost.
            runs = {
                str(run_id): (Path(str(path).replace("\0", "")), dict[str, int]())
                for run_id, path in self._rows("SELECT run_id, directory FROM open_runs", ())
            }
            for run_id, file, offset in self._rows("SELECT run_id, file, offset FROM offsets", ()):
                if run_id in runs and isinstance(offset, int) and offset >= 0:
                    runs[run_id][1][file] = offset
        return runs

    def close(self) -> None:
        """Delete acknowledged messages and close the file."""
        with self._lock:
            try:
                with transaction(self._connection) as connection:
                    _delete_acknowledged(connection, self._acknowledged)
            finally:
                self._connection.close()

    def _rows(self, sql: str, parameters: Sequence[int | str]) -> list[Any]:
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise SpoolError(f"the spool cannot be read: {error}") from error

    def _value(self, sql: str, parameters: Sequence[int] = ()) -> int:
        return int(self._rows(sql, parameters)[0][0])


def _insert(connection: sqlite3.Connection, session: Session, first_number: int, entries: Sequence[Entry]) -> None:
    connection.executemany(
        "INSERT INTO messages (session_id, number, records, checksum, droppable, from_unix_nano, to_unix_nano) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                session.session_id,
                number,
                entry.records,
                message_checksum(session.session_uuid, session.node_uuid, number, entry.records),
                entry.droppable,
                entry.from_unix_nano,
                entry.to_unix_nano,
            )
            for number, entry in enumerate(entries, first_number)
        ],
    )


def _keep_apart(connection: sqlite3.Connection, position: int, reason: str) -> int:
    connection.execute(
        "INSERT INTO rejected SELECT session_id, number, ?, records FROM messages WHERE position = ?",
        (reason, position),
    )
    connection.execute("DELETE FROM rejected WHERE rowid <= (SELECT max(rowid) FROM rejected) - ?", (_KEPT_REJECTIONS,))
    deleted = connection.execute("DELETE FROM messages WHERE position = ? RETURNING length(records)", (position,))
    return sum(size for (size,) in deleted.fetchall())


def _delete_acknowledged(connection: sqlite3.Connection, marks: Mapping[int, int]) -> int:
    freed = 0
    for mark in marks.items():
        freed += connection.execute(f"SELECT coalesce(sum(length(records)), 0) {_COVERED}", mark).fetchone()[0]
        connection.execute(f"DELETE {_COVERED}", mark)
    return freed


def _drop_oldest(connection: sqlite3.Connection, wanted_bytes: int) -> tuple[int, list[Entry]]:
    """Drop the oldest samples until `wanted_bytes` are free or none are left; return freed bytes and the gap."""
    victims: list[tuple[int, int, int]] = []
    size_bytes = 0
    for position, from_nano, to_nano, size in connection.execute(
        "SELECT position, from_unix_nano, to_unix_nano, length(records) FROM messages WHERE droppable ORDER BY position"
    ):
        if size_bytes >= wanted_bytes:
            break
        victims.append((position, from_nano, to_nano))
        size_bytes += size
    if not victims:
        return 0, []
    connection.executemany("DELETE FROM messages WHERE position = ?", [(victim[0],) for victim in victims])
    start, end = min(victim[1] for victim in victims), max(victim[2] for victim in victims)
    return size_bytes, [gap_entry(start, end, "spool_full", messages=len(victims))]


def gap_entry(
    from_unix_nano: int, to_unix_nano: int, reason: str, *, messages: int | None, detail: str | None = None
) -> Entry:
    """Return a message that records a stretch without data."""
    row: dict[str, Value] = {
        "time": time.time_ns(),
        "from_time": from_unix_nano,
        "to_time": to_unix_nano,
        "reason": reason,
        "messages": messages,
        "detail": detail,
    }
    records = encode_records({"gaps": [row]})
    return Entry(records=records, droppable=False, from_unix_nano=from_unix_nano, to_unix_nano=to_unix_nano)


def count_messages(file: Path) -> int:
    """Return the messages in the file of a spool that no agent has open; 0 where it cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return int(connection.execute(_COUNT).fetchone()[0])
    except sqlite3.Error:
        return 0
