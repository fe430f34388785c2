"""Ownership of sessions and of housekeeping among collectors of one store.

docs/architecture.md explains why no row can enter the store twice.
"""

import secrets
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store import Kind, StoreSpec
from gpuagent_collector.store.transactions import retry_conflicts, transaction

# The owner of this session looks after the runs of all; agents' sessions have random keys.
HOUSEKEEPING = 0

# The housekeeper commits every 10 s. Silence is measured by our own clock, from one look to the next.
_SILENCE_SECONDS = 60.0

_TAKEOVERS_SINCE = "SELECT session_id, collector, epoch FROM session_owners WHERE epoch > ? ORDER BY epoch"
_REPLACE_FENCE = "UPDATE commits SET committed_at = ? WHERE collector IS NULL"
_TAKE_OVER = "INSERT INTO session_owners SELECT unnest(?::BIGINT[]), ?, ?, ?"
_SIGN = "INSERT INTO commits VALUES (?, ?)"
_LAST_COMMIT = """
SELECT owner.collector, max(committed_at) FROM
    (SELECT collector FROM session_owners WHERE session_id = ? ORDER BY epoch DESC LIMIT 1) AS owner
    LEFT JOIN commits USING (collector)
GROUP BY owner.collector
"""


class Ownership:
    """Ownership in a store that one collector has to itself: every session is ours.

    It belongs to the thread that writes the store. Every method raises duckdb.Error if the store fails.
    """

    def claim(self, session_ids: Iterable[int]) -> Collection[int]:  # noqa: ARG002 - for shared stores
        """Make these sessions ours, whoever wrote them before; return those that were not ours until now.

        After a failure they may be ours or not.
        """
        return ()

    def owns(self, session_id: int) -> bool:  # noqa: ARG002 - for shared stores
        """Return whether a session was ours at the last look."""
        return True

    def sign(self) -> None:
        """Re-read ownership inside the open transaction so that any concurrent takeover conflicts with it."""

    def settle(self) -> None:
        """Return only when no commit of ours can still be in progress, after one whose answer was lost."""


@dataclass
class SharedOwnership(Ownership):
    """Ownership in a store with several collectors: rows of `session_owners`, and a fence in `commits`."""

    connection: duckdb.DuckDBPyConnection
    now: Callable[[], datetime]
    collector: str = field(default_factory=lambda: secrets.token_hex(16))
    _epoch: int = -1
    _ours: set[int] = field(default_factory=set)

    def claim(self, session_ids: Iterable[int]) -> Collection[int]:
        """Take over those of the sessions that are not ours."""
        wanted = set(session_ids)
        taken = retry_conflicts(lambda: self._take_over(wanted))
        self._ours |= taken  # as the next look would find, unless another collector has taken them since
        return taken

    def owns(self, session_id: int) -> bool:
        """Return whether a session was ours at the last look."""
        return session_id in self._ours

    def sign(self) -> None:
        """Read the takeovers since the last look, and append a row that conflicts with every takeover."""
        self._follow()
        self.connection.execute(_SIGN, [self.collector, self.now()])

    def settle(self) -> None:
        """Replace the fence: a snapshot's number is given once, so a pending commit has it, or fails, before us."""

        def pass_fence() -> None:
            with transaction(self.connection):
                self._replace_fence()

        retry_conflicts(pass_fence)

    def _take_over(self, wanted: set[int]) -> set[int]:
        with transaction(self.connection):
            self._follow()
            missing = wanted - self._ours
            if missing:
                self._replace_fence()
                moment, epoch = self.now(), self._epoch + 1
                self.connection.execute(_TAKE_OVER, [sorted(missing), self.collector, epoch, moment])
            return missing

    def _follow(self) -> None:
        for session_id, collector, epoch in self.connection.execute(_TAKEOVERS_SINCE, [self._epoch]).fetchall():
            (self._ours.add if collector == self.collector else self._ours.discard)(session_id)
            self._epoch = epoch

    def _replace_fence(self) -> None:
        row = self.connection.execute(_REPLACE_FENCE, [self.now()]).fetchone()
        if not row or row[0] == 0:
            raise StoreError("the store's table commits has lost its fence, without which collectors cannot share it")


def ownership_of(spec: StoreSpec, connection: duckdb.DuckDBPyConnection, *, now: Callable[[], datetime]) -> Ownership:
    """Return the ownership for this kind of store, for a writer of its own."""
    return SharedOwnership(connection, now) if spec.kind is Kind.SHARED else Ownership()


@dataclass
class Duty:
    """The housekeeping lease. It belongs to the thread that writes the store.

    One collector of a store looks after the runs of all; another takes over when it falls silent. Every method raises
    duckdb.Error if the store fails.
    """

    connection: duckdb.DuckDBPyConnection
    ownership: Ownership
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._seen: tuple[str, datetime | None] | None = None
        self._seen_seconds = self.monotonic()

    def take(self) -> bool:
        """Return whether housekeeping is ours; take it over when its owner is missing or silent."""
        if not self.is_ours():
            seen = self.connection.execute(_LAST_COMMIT, [HOUSEKEEPING]).fetchone()
            if seen != self._seen:
                self._seen, self._seen_seconds = seen, self.monotonic()
            if seen is None or self.monotonic() - self._seen_seconds > _SILENCE_SECONDS:
                self.ownership.claim([HOUSEKEEPING])
        return self.is_ours()

    def is_ours(self) -> bool:
        """Return whether housekeeping was ours at the last look."""
        return self.ownership.owns(HOUSEKEEPING)

    def sign(self) -> bool:
        """Do as `Ownership.sign` in the open transaction; return whether housekeeping is still ours."""
        self.ownership.sign()
        return self.is_ours()
