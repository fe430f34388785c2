"""Import of a spool that was copied by hand, as if its agent had delivered it.

The import reads the SQLite file's `user_version`, which must be 2, and two tables. `sessions` names each agent process
with messages: `session_uuid`, `node_uuid`, and as `session_id` the former's key. `messages` holds them by `session_id`
and `number`, oldest first by `position`: `records` as sent over the wire, and a `checksum`.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.committer import Committer
from gpuagent_collector.ingest.messages import Message, Verdict
from gpuagent_collector.ingest.ownership import ownership_of
from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.keys import SPOOL_VERSION, key, message_checksum

SPOOL_FILE = "spool.sqlite"
_SQLITE = b"SQLite format 3\0"

# Messages in one transaction; an agent's flush of a second is one message.
_MESSAGES_AT_ONCE = 200

_PAGE = """
SELECT position, session_id, session_uuid, node_uuid, number, records, checksum
FROM messages LEFT JOIN sessions USING (session_id) WHERE position > ? ORDER BY position LIMIT ?
"""


class SpoolError(GpuAgentError):
    """A spool that cannot be read to the end. Messages stored before the fault stay, and are recognised later."""


def is_spool(file: Path) -> bool:
    """Return whether this is an SQLite file. Raises OSError: the file cannot be read."""
    with file.open("rb") as content:
        return content.read(len(_SQLITE)) == _SQLITE


def import_spool(file: Path, store: Store) -> Mapping[Verdict, int]:
    """Store the messages of a spool that the store lacks; return their number by verdict.

    The spool is not changed. It can be imported again or delivered by its agent, because marks record what is stored.

    Raises:
        SpoolError: the spool cannot be read.
        StoreError: the store cannot be written.
    """
    counts: Counter[Verdict] = Counter()
    ended: dict[str, None] = {}
    with _open_spool(file) as spool, closing(store.connect()) as connection:
        try:
            ownership = ownership_of(store.spec, connection, now=utc_now)
            committer = Committer(connection, now=utc_now, ownership=ownership)
            rows = spool.execute("SELECT session_id, session_uuid, node_uuid FROM sessions").fetchall()
            if wrong := [row for row in rows if row[0] != key(str(row[1]))]:
                raise SpoolError(f"the spool is damaged: the key of session {wrong[0][0]} does not fit its UUID")
            nodes = {session_id: key(str(node_uuid)) for session_id, _, node_uuid in rows}
            committer.claim(nodes)
            for page in _read_pages(spool, nodes):
                receipt = committer.commit(page)
                counts.update(outcome.verdict for outcome in receipt.outcomes)
                if counts[Verdict.DISOWNED]:
                    raise SpoolError(f"an agent is delivering from {file}; import the spool when the agent has stopped")
                ended |= dict.fromkeys(receipt.ended_runs)
        except duckdb.Error as error:
            raise StoreError(f"cannot write the store {store.spec}: {error}") from error
    with store.transaction() as connection:
        summarize_runs(connection, list(ended), utc_now())
    return counts


@contextmanager
def _open_spool(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a spool without writing to it."""
    # Without a write-ahead log the file is complete: it needs no lock, and may be on read-only media.
    mode = "mode=ro" if file.with_name(f"{file.name}-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?{mode}", uri=True)) as spool:
            (version,) = spool.execute("PRAGMA user_version").fetchone()
            if version != SPOOL_VERSION:
                raise SpoolError(f"{file} has an unknown spool version; upgrade gpuagent here")
            yield spool
    except sqlite3.Error as error:
        raise SpoolError(f"cannot read the spool {file}: {error}") from error


def _read_pages(spool: sqlite3.Connection, nodes: Mapping[int, int]) -> Iterator[Sequence[Message]]:
    last: Any = -1
    while rows := spool.execute(_PAGE, (last, _MESSAGES_AT_ONCE)).fetchall():
        messages = []
        for last, session_id, session_uuid, node_uuid, number, records, checksum in rows:  # noqa: B007
            if (
                message_checksum(session_uuid, node_uuid, number, records) != checksum
                or session_id not in nodes
                or number < 1
            ):
                raise SpoolError(f"message {number} of session {session_id} in the spool is damaged")
            messages.append(Message(session_id=session_id, node_id=nodes[session_id], number=number, records=records))
        yield messages
