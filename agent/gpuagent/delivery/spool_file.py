"""The SQLite file of the spool: its tables, and transactions that are on the disk when they return."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gpuagent_common.errors import GpuAgentError
from gpuagent_common.keys import SPOOL_VERSION

# Its name in the folder that `locations.spool_directory` finds.
SPOOL_FILE = "spool.sqlite"

# Whatever is changed here, comments too, needs another SPOOL_VERSION: a spool is compared with this text.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    session_id INTEGER PRIMARY KEY, session_uuid TEXT NOT NULL, node_uuid TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS messages (
    position INTEGER PRIMARY KEY AUTOINCREMENT, -- never reused: it identifies what was sent
    session_id INTEGER NOT NULL, number INTEGER NOT NULL,
    droppable INTEGER NOT NULL, from_unix_nano INTEGER NOT NULL, to_unix_nano INTEGER NOT NULL, records BLOB NOT NULL,
    checksum INTEGER NOT NULL, -- SQLite has none of its own
    UNIQUE (session_id, number)
);
CREATE INDEX IF NOT EXISTS droppable_messages ON messages (position) WHERE droppable;
CREATE TABLE IF NOT EXISTS rejected (session_id INTEGER, number INTEGER, reason TEXT, records BLOB);
CREATE TABLE IF NOT EXISTS open_runs (run_id TEXT PRIMARY KEY, directory TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (run_id TEXT, file TEXT, offset INTEGER NOT NULL, PRIMARY KEY (run_id, file));
"""


class SpoolError(GpuAgentError):
    """An error of the spool: no part of the message was written."""


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run BEGIN IMMEDIATE … COMMIT; on any failure ROLLBACK, and raise SpoolError for those of SQLite."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite itself rolls back for some errors, such as a full disk
                connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise SpoolError(f"the spool cannot be written: {error}") from error


def connect(file: Path) -> sqlite3.Connection:
    """Open `file` so that a commit is on the disk when it returns.

    Raises:
        SpoolError: the file cannot be opened or made, such as on a full disk.
        sqlite3.DatabaseError: the file is damaged.
    """
    try:
        return _connect(file)
    except sqlite3.OperationalError as error:
        raise SpoolError(f"cannot open the spool {file}: {error}; give another folder by --spool") from error


def _connect(file: Path) -> sqlite3.Connection:
    with contextlib.suppress(OSError):  # which SQLite reports
        file.touch(mode=0o600)  # its log gets the same mode
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda content: content.decode(errors="replace")  # checksums find damage
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        problem = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if problem != "ok":
            raise sqlite3.DatabaseError(problem)
        is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        # A spool of another version is set aside like a damaged one.
        if not is_empty and version != SPOOL_VERSION:
            raise sqlite3.DatabaseError(f"its version is {version}, not {SPOOL_VERSION}")
        # All or nothing: one that a full disk left half made would have another version.
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {SPOOL_VERSION}; COMMIT;")
        # The integrity check does not read the names of columns.
        with contextlib.closing(sqlite3.connect(":memory:")) as expected:
            expected.executescript(_SCHEMA)
            if _definitions(connection) != _definitions(expected):
                raise sqlite3.DatabaseError("its tables are defined otherwise")
    except UnicodeDecodeError as error:  # from sqlite3, for a schema that it cannot print
        connection.close()
        raise sqlite3.DatabaseError(str(error)) from error
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _definitions(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
