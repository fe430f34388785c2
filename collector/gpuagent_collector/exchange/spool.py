"""Takes a spool that was carried here by hand, as if its agent had delivered it.

All that is read of it: the SQLite file's `user_version` is 2; `sessions` names each agent process that has messages
there (`session_uuid`, `node_uuid`, and as `session_id` the former's key); `messages` holds them by `session_id` and
`number`, oldest first by `position`, each in `records` as it goes over the wire, with a `checksum`.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.exchange.transaction import transaction
from gpuagent_collector.ingest.committer import Committer
from gpuagent_collector.ingest.messages import Message, Verdict
from gpuagent_collector.ingest.ownership import ownership_of
from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.keys import key
from gpuagent_common.spooled import SPOOL_VERSION, message_checksum

SPOOL_FILE = "spool.sqlite"
_SQLITE = b"SQLite format 3\0"

# In one transaction. An agent's flush of a second is one message.
_MESSAGES_AT_ONCE = 200

_PAGE = """
SELECT position, session_id, session_uuid, node_uuid, number, records, checksum
FROM messages LEFT JOIN sessions USING (session_id) WHERE position > ? ORDER BY position LIMIT ?
"""


class SpoolError(GpuAgentError):
    """A file is no spool that can be read. What was stored of it before that stays, and is recognised."""


def is_spool(file: Path) -> bool:
    """Return whether this is an SQLite file.

    Raises:
        OSError: it cannot be read.
    """
    with file.open("rb") as content:
        return content.read(len(_SQLITE)) == _SQLITE


def import_spool(file: Path, store: Store) -> Mapping[Verdict, int]:
    """Store the messages of a spool that the store does not have; return how many came to which end.

    The spool is not changed. It can be imported again, or delivered by its agent: marks tell what is stored.

    Raises:
        SpoolError: it cannot be read.
        StoreError: the store cannot be written.
    """
    counts: Counter[Verdict] = Counter()
    ended: dict[str, None] = {}
    with _reading(file) as spool, closing(store.connect()) as connection:
        try:
            ownership = ownership_of(store.spec, connection, now=utc_now)
            committer = Committer(connection, now=utc_now, ownership=ownership)
            nodes = _nodes(spool)
            committer.claim(nodes)
            for page in _pages(spool, nodes):
                receipt = committer.commit(page)
                counts.update(outcome.verdict for outcome in receipt.outcomes)
                if counts[Verdict.DISOWNED]:
                    raise SpoolError(f"an agent delivers from {file} at the same time; import it when that has ended")
                ended |= dict.fromkeys(receipt.ended_runs)
        except duckdb.Error as error:
            raise StoreError(f"cannot write the store {store.spec}: {error}") from error
    with transaction(store) as connection:
        summarize_runs(connection, list(ended), utc_now())
    return counts


@contextmanager
def _reading(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a spool so that nothing is written to it."""
    # Without a log beside it, the file is all there is: it needs no lock, and may lie on what cannot be written.
    how = "mode=ro" if file.with_name(f"{file.name}-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?{how}", uri=True)) as spool:
            (version,) = spool.execute("PRAGMA user_version").fetchone()
            if version != SPOOL_VERSION:
                raise SpoolError(f"{file} is no spool of a version that this collector reads; upgrade it")
            yield spool
    except sqlite3.Error as error:
        raise SpoolError(f"cannot read the spool {file}: {error}") from error


def _nodes(spool: sqlite3.Connection) -> dict[int, int]:
    """Return the node of each session."""
    rows = spool.execute("SELECT session_id, session_uuid, node_uuid FROM sessions").fetchall()
    if wrong := [row for row in rows if row[0] != key(str(row[1]))]:
        raise SpoolError(f"session {wrong[0][0]} of the spool is not what its identity says")
    return {session_id: key(str(node_uuid)) for session_id, _, node_uuid in rows}


def _pages(spool: sqlite3.Connection, nodes: Mapping[int, int]) -> Iterator[Sequence[Message]]:
    last: Any = -1
    while rows := spool.execute(_PAGE, (last, _MESSAGES_AT_ONCE)).fetchall():
        yield [_message(row, nodes) for row in rows]
        last = rows[-1][0]


def _message(row: Sequence[Any], nodes: Mapping[int, int]) -> Message:
    _, session_id, *content, checksum = row
    number, records = content[-2:]
    if message_checksum(*content) != checksum or session_id not in nodes or number < 1:
        raise SpoolError(f"message {number} of session {session_id} in the spool is damaged")
    return Message(session_id=session_id, node_id=nodes[session_id], number=number, records=records)
