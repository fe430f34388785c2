"""The store, opened."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from types import TracebackType

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.schema import Migration, check_version, load_migrations, migrate, stored_version
from gpuagent_collector.store.compact import LakeFiles, fold_bookkeeping, lake_files, tidy_lake
from gpuagent_collector.store.instance import LAKE, Instance, harden, start_instance, use_store
from gpuagent_collector.store.layout import lay_out
from gpuagent_collector.store.retention import Retention, Slice, retain
from gpuagent_collector.store.sampled import believed
from gpuagent_collector.store.shared import check_clock
from gpuagent_collector.store.spec import Kind, StoreSpec
from gpuagent_collector.store.transactions import until_first
from gpuagent_collector.times import utc_now


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
        create: bool = True,
        exact: bool = False,
        memory_bytes: int | None = None,
        migrations: Sequence[Migration] | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> "Store":
        """Open the store and bring it to the newest schema; make it when it is not there.

        Args:
            spec: `PATH` of a DuckDB file, `ducklake:PATH`, or `ducklake:postgres:CONNECTION`.
            read_only: nothing is written, and the store must have the newest schema already.
            create: make it when it is not there, unless `read_only`.
            exact: what is written is kept to the last bit, at the price of a file for each insert of a lake.
            memory_bytes: how much the store may take, most of it for what was read or written last; None: half of what
                the machine or the container has.
            migrations: the schema; None: the one that this collector knows.
            now: tells the time that migrations are recorded with.

        Raises:
            MisuseError: `spec` names no path.
            StoreError: it cannot be opened, is in use, is no store, or is newer than this collector.
        """
        parsed = StoreSpec.parse(spec) if isinstance(spec, str) else spec
        schema = load_migrations() if migrations is None else migrations
        instance = start_instance(parsed, read_only=read_only, create=create, exact=exact)
        try:
            if parsed.kind is Kind.SHARED and not read_only:
                check_clock(instance.connection, LAKE, now())
            harden(instance, parsed, memory_bytes)
            if read_only:
                _check_current(instance.connection, schema)
            else:
                _upgrade(instance, parsed, schema, now)
        except (duckdb.Error, StoreError) as error:
            instance.connection.close()
            raise StoreError(f"cannot use the store {parsed}: {error}") from error
        return cls(parsed, instance.connection, read_only=read_only)

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
        with self._maintaining() as connection:
            fold_bookkeeping(connection)
            if self.spec.is_lake:
                tidy_lake(connection)

    def believed(self, now: datetime) -> datetime:
        """Return what time it is, in UTC, by a clock that says `now` and by the samples.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._maintaining() as connection:
            return believed(connection, now)

    def retain(self, retention: Retention, now: datetime) -> Iterator[Slice]:
        """Thin out and remove samples that are old enough at this time, in UTC, and say after each slice what it was.

        The time is to be right: `believed` tells.

        Raises:
            StoreError: it failed; what was said is done.
        """
        with self._maintaining() as connection:
            yield from retain(connection, retention, now, sorted_by_node=self.spec.is_lake)

    def files(self) -> LakeFiles | None:
        """Return the files that a lake's tables lie in; None: it is no lake.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._maintaining() as connection:
            return lake_files(connection) if self.spec.is_lake else None

    @contextmanager
    def _maintaining(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with closing(self.connect()) as connection:
            try:
                yield connection
            except duckdb.Error as error:
                raise StoreError(f"cannot tidy the store {self.spec}: {error}") from error

    def close(self) -> None:
        """Close the store. What was committed is safe, with or without this."""
        self._instance.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _upgrade(instance: Instance, spec: StoreSpec, migrations: Sequence[Migration], now: Callable[[], datetime]) -> None:
    connection = instance.connection
    finish = lay_out if spec.kind is Kind.SHARED else None
    while True:
        version = stored_version(connection)
        try:
            return until_first(lambda: migrate(connection, migrations, now(), finish=finish))
        except duckdb.Error:
            # Of several collectors that start at once on a store to be upgraded one comes first, and the others fail in
            # one way or another; then nothing is left to do for them.
            if stored_version(connection) == version:
                raise


def _check_current(connection: duckdb.DuckDBPyConnection, migrations: Sequence[Migration]) -> None:
    version = check_version(connection, migrations)
    if version < migrations[-1].version:
        raise StoreError("it has an older schema; start `collector serve` on it once, which upgrades it")
