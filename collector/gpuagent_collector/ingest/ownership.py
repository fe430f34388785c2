"""Which sessions this collector may write. docs/architecture.md says why no row can come into the store twice."""

import secrets
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Protocol

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store import Kind, StoreSpec
from gpuagent_collector.store.transactions import transaction, until_first

# Who owns this session looks after the runs of all; agents' sessions have random keys.
HOUSEKEEPING = 0

_TAKEOVERS_SINCE = "SELECT session_id, collector, epoch FROM session_owners WHERE epoch > ? ORDER BY epoch"
_REPLACE_FENCE = "UPDATE commits SET committed_at = ? WHERE collector IS NULL"
_TAKE_OVER = "INSERT INTO session_owners VALUES (?, ?, ?, ?)"
_SIGN = "INSERT INTO commits VALUES (?, ?)"


class Ownership(Protocol):
    """Says whose a session is. It belongs to the thread that writes the store."""

    def claim(self, session_ids: Iterable[int]) -> Collection[int]:
        """Make these sessions ours, whoever wrote them before; return those that were another's until now, or nobody's.

        Raises:
            duckdb.Error: the store failed. They may be ours or not.
        """
        ...

    def owns(self, session_id: int) -> bool:
        """Tell whether a session was ours when it was looked at last."""
        ...

    def sign(self) -> None:
        """Look anew, in the transaction that is open, and have that conflict with every takeover from here to its end.

        Raises:
            duckdb.Error: the store failed.
        """
        ...

    def settle(self) -> None:
        """Return only when no commit of ours can still be on its way, after one whose answer did not come.

        Raises:
            duckdb.Error: the store failed.
        """
        ...


class SoleOwnership:
    """Of a store that one collector has to itself."""

    def claim(self, session_ids: Iterable[int]) -> Collection[int]:  # noqa: ARG002 - as of a store that is shared
        """Nothing to do."""
        return ()

    def owns(self, session_id: int) -> bool:  # noqa: ARG002 - as of a store that is shared
        """Every session is ours."""
        return True

    def sign(self) -> None:
        """Nothing to do."""

    def settle(self) -> None:
        """Nothing to do: a transaction of our own process has ended."""


class SharedOwnership:
    """Of a store that others write too: kept in `session_owners`, guarded by the fence in `commits`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, now: Callable[[], datetime]) -> None:
        self.collector = secrets.token_hex(16)
        self._connection = connection
        self._now = now
        self._epoch = -1
        self._ours: set[int] = set()

    def claim(self, session_ids: Iterable[int]) -> Collection[int]:
        """Take over those of the sessions that are not ours."""
        wanted = set(session_ids)
        taken = until_first(lambda: self._take_over(wanted))
        self._ours |= taken  # as the next look would find, if nobody has taken them since
        return taken

    def owns(self, session_id: int) -> bool:
        """Tell whether a session was ours when it was looked at last."""
        return session_id in self._ours

    def sign(self) -> None:
        """Read the takeovers since the last look, and append what every takeover conflicts with."""
        self._follow()
        self._connection.execute(_SIGN, [self.collector, self._now()])

    def settle(self) -> None:
        """Replace the fence: a snapshot's number is given once, so what is on its way has it, or fails, before us."""
        until_first(self._pass_fence)

    def _pass_fence(self) -> None:
        with transaction(self._connection):
            self._replace_fence()

    def _take_over(self, wanted: set[int]) -> set[int]:
        with transaction(self._connection):
            self._follow()
            missing = wanted - self._ours
            if missing:
                self._replace_fence()
                moment, epoch = self._now(), self._epoch + 1
                self._connection.executemany(
                    _TAKE_OVER, [(session_id, self.collector, epoch, moment) for session_id in sorted(missing)]
                )
            return missing

    def _follow(self) -> None:
        for session_id, collector, epoch in self._connection.execute(_TAKEOVERS_SINCE, [self._epoch]).fetchall():
            (self._ours.add if collector == self.collector else self._ours.discard)(session_id)
            self._epoch = epoch

    def _replace_fence(self) -> None:
        row = self._connection.execute(_REPLACE_FENCE, [self._now()]).fetchone()
        if not row or row[0] == 0:
            raise StoreError("the store's table commits has lost its fence, without which collectors cannot share it")


def ownership_of(spec: StoreSpec, connection: duckdb.DuckDBPyConnection, *, now: Callable[[], datetime]) -> Ownership:
    """Return how this kind of store tells whose a session is, for a writer of its own."""
    return SharedOwnership(connection, now) if spec.kind is Kind.SHARED else SoleOwnership()
