"""Which of the collectors of a store looks after the runs of all: one, and another when that one has gone."""

import time
from collections.abc import Callable
from datetime import datetime

import duckdb

from gpuagent_collector.ingest.ownership import HOUSEKEEPING, Ownership

# Who keeps house commits every 10 s. It is told by our own clock, from one look to the next.
_SILENCE_SECONDS = 60.0

_LAST_COMMIT = """
SELECT owner.collector, max(committed_at) FROM
    (SELECT collector FROM session_owners WHERE session_id = ? ORDER BY epoch DESC LIMIT 1) AS owner
    LEFT JOIN commits USING (collector)
GROUP BY owner.collector
"""


class Duty:
    """Whether housekeeping is ours. It belongs to the thread that writes the store."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        ownership: Ownership,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._ownership = ownership
        self._monotonic = monotonic
        self._seen: tuple[str, datetime | None] | None = None
        self._seen_seconds = monotonic()

    def take(self) -> bool:
        """Return whether housekeeping is ours; take it over when nobody has it, or who has it commits no more.

        Raises:
            duckdb.Error: the store failed.
        """
        if not self.is_ours() and self._is_vacant():
            self._ownership.claim([HOUSEKEEPING])
        return self.is_ours()

    def is_ours(self) -> bool:
        """Tell whether housekeeping was ours when it was looked at last."""
        return self._ownership.owns(HOUSEKEEPING)

    def sign(self) -> bool:
        """Do as `Ownership.sign` in the transaction that is open; return whether housekeeping is ours still.

        Raises:
            duckdb.Error: the store failed.
        """
        self._ownership.sign()
        return self.is_ours()

    def _is_vacant(self) -> bool:
        seen = self._connection.execute(_LAST_COMMIT, [HOUSEKEEPING]).fetchone()
        if seen != self._seen:
            self._seen, self._seen_seconds = seen, self._monotonic()
        return seen is None or self._monotonic() - self._seen_seconds > _SILENCE_SECONDS
