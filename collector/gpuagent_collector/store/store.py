"""The store, opened."""

from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.schema import Migration, check_version, load_migrations, migrate
from gpuagent_collector.store.instance import LAKE, harden, start_instance, use_store
from gpuagent_collector.store.spec import Kind, StoreSpec
from gpuagent_collector.times import utc_now

_COMPACT_MARKS = """
DELETE FROM marks WHERE (session_id, number) NOT IN (SELECT session_id, max(number) FROM marks GROUP BY session_id)
"""

_TIDY_LAKE = (
    # Old snapshots keep old files; nobody reads one for a day.
    f"CALL ducklake_set_option('{LAKE}', 'expire_older_than', '1 day')",
    f"CALL ducklake_set_option('{LAKE}', 'delete_older_than', '1 day')",
    f"CHECKPOINT {LAKE}",
)


class Store:
    """A store at the newest schema, in a DuckDB instance that can touch nothing else.

    Any thread may call `connect`; each connection belongs to one thread at a time.
    """

    def __init__(self, spec: StoreSpec, instance: duckdb.DuckDBPyConnection, *, read_only: bool) -> None:
        self.spec = spec
        self.read_only = read_only
        self._instance = instance

    @classmethod
    def open(
        cls,
        spec: StoreSpec | str,
        *,
        read_only: bool = False,
        exact: bool = False,
        migrations: Sequence[Migration] | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> "Store":
        """Open the store and bring it to the newest schema; make it when it is not there.

        Args:
            spec: `PATH` of a DuckDB file, or `ducklake:PATH`.
            read_only: nothing is written, and the store must have the newest schema already.
            exact: what is written is kept to the last bit, at the price of a file for each insert of a lake.
            migrations: the schema; None: the one that this collector knows.
            now: tells the time that migrations are recorded with.

        Raises:
            MisuseError: `spec` names no path.
            StoreError: it cannot be opened, is in use, is no store, or is newer than this collector.
        """
        parsed = StoreSpec.parse(spec) if isinstance(spec, str) else spec
        schema = load_migrations() if migrations is None else migrations
        instance = start_instance(parsed, read_only=read_only, exact=exact)
        try:
            harden(instance, parsed)
            if read_only:
                _check_current(instance, schema)
            else:
                migrate(instance, schema, now())
        except (duckdb.Error, StoreError) as error:
            instance.close()
            raise StoreError(f"cannot use the store {parsed.path}: {error}") from error
        return cls(parsed, instance, read_only=read_only)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return another connection to the store, with transactions of its own; the caller closes it."""
        connection = self._instance.cursor()
        use_store(connection, self.spec)
        return connection

    def tidy(self) -> None:
        """Fold together what small commits left behind: old marks, and a lake's inlined rows and small files.

        Raises:
            StoreError: it failed; the store is as it was.
        """
        connection = self.connect()
        try:
            for statement in (_COMPACT_MARKS, *(_TIDY_LAKE if self.spec.kind is Kind.LAKE else ())):
                connection.execute(statement)
        except duckdb.Error as error:
            raise StoreError(f"cannot tidy the store {self.spec.path}: {error}") from error
        finally:
            connection.close()

    def close(self) -> None:
        """Close the store. What was committed is safe, with or without this."""
        self._instance.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_current(connection: duckdb.DuckDBPyConnection, migrations: Sequence[Migration]) -> None:
    version = check_version(connection, migrations)
    if version < migrations[-1].version:
        raise StoreError("it has an older schema; start `collector serve` on it once, which upgrades it")
