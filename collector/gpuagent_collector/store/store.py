"""An open store."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta

import duckdb

from gpuagent_collector.errors import OlderSchemaError, StoreError
from gpuagent_collector.schema import Migration, check_version, load_migrations, migrate, stored_version
from gpuagent_collector.store.columns import LongestTexts
from gpuagent_collector.store.compact import LakeFiles, fold_bookkeeping, fold_states, lake_files, lay_out, tidy_lake
from gpuagent_collector.store.instance import LAKE, Instance, explain, harden, start_instance, use_store
from gpuagent_collector.store.retention import Retention, Slice, retain, trusted_now
from gpuagent_collector.store.shared import check_clock
from gpuagent_collector.store.sorting import sort_old
from gpuagent_collector.store.spec import Kind, StoreSpec
from gpuagent_collector.store.transactions import retry_conflicts, transaction
from gpuagent_collector.times import utc_now

_LOG = logging.getLogger(__name__)


class Store:
    """A store at the newest schema, in a DuckDB instance that can touch nothing else.

    Any thread may call `connect`; each connection belongs to one thread at a time. Every method raises StoreError if
    the store fails; its rows are then unchanged.
    """

    def __init__(self, spec: StoreSpec, instance: duckdb.DuckDBPyConnection, *, read_only: bool) -> None:
        self.spec = spec
        self.read_only = read_only
        self.longest_texts = LongestTexts()
        self._instance = instance

    @classmethod
    def open(
        cls,
        spec: StoreSpec | str,
        *,
        read_only: bool = False,
        older: bool = False,
        create: bool = True,
        exact: bool = False,
        memory_bytes: int | None = None,
        migrations: Sequence[Migration] | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> "Store":
        """Open the store and bring it to the newest schema.

        Args:
            spec: `PATH` of a DuckDB file, `ducklake:PATH`, or `ducklake:postgres:CONNECTION`.
            read_only: write nothing; the store must have the newest schema already.
            older: with `read_only`, accept an older schema.
            create: make a missing store, unless `read_only`.
            exact: keep every DOUBLE to the last bit, at the price of a file for each insert of a lake.
            memory_bytes: limit of memory, mostly a cache of rows; None: half of the machine's or the container's.
            migrations: the schema; None: the newest of this collector.
            now: clock for the record of migrations.

        Raises:
            MisuseError: `spec` has no path.
            StoreError: the store cannot be opened, is in use, is another program's, or is newer than this collector.
        """
        parsed = StoreSpec.parse(spec) if isinstance(spec, str) else spec
        schema = load_migrations() if migrations is None else migrations
        instance = start_instance(parsed, read_only=read_only, create=create, exact=exact)
        try:
            harden(instance, parsed, memory_bytes)
            if not read_only:
                _upgrade(instance, parsed, schema, now)
            elif check_version(instance.connection, schema) < schema[-1].version and not older:
                raise OlderSchemaError(f"it has an older schema; `collector serve --store {parsed}` upgrades it")
        except StoreError as error:
            instance.connection.close()
            kind = OlderSchemaError if isinstance(error, OlderSchemaError) else StoreError
            raise kind(f"cannot use the store {parsed}: {error}") from error
        except duckdb.Error as error:
            instance.connection.close()
            raise StoreError(*explain(parsed, str(error), read_only=read_only)) from error
        return cls(parsed, instance.connection, read_only=read_only)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return another connection to the store, with transactions of its own; the caller closes it."""
        connection = self._instance.cursor()
        use_store(connection, self.spec)
        return connection

    def checkpoint(self) -> None:
        """Move all committed rows from DuckDB's write-ahead log into its file.

        Closing does the same, but fails silently where space is short, and then leaves the rows in the log alone. They
        are safe as long as it stays beside the file.
        """
        with self.using("checkpoint") as connection:
            connection.execute("CHECKPOINT")

    def tidy(self) -> None:
        """Compact what many commits left behind: old marks and states, or a lake's inlined rows and small files."""
        with self.using("tidy") as connection:
            fold_bookkeeping(connection)
            if self.spec.is_lake:
                tidy_lake(connection)
            else:
                fold_states(connection)

    def trusted_now(self, now: datetime) -> datetime:
        """Return `now`, in UTC, if samples confirm it, else an earlier time that they do."""
        with self.using("tidy") as connection:
            return trusted_now(connection, now)

    def retain(self, retention: Retention, now: datetime) -> Iterator[Slice]:
        """Thin out and remove samples that are old at `now`, in UTC, and yield each slice when it is done.

        The time must be right: see `trusted_now`. After a failure the yielded slices are done.
        """
        with self.using("tidy") as connection:
            yield from retain(connection, retention, now, sorted_by_node=self.spec.is_lake)

    def sort(self, now: datetime) -> Iterator[Slice]:
        """Sort all samples of a file up to `now`, in UTC, and yield each slice when it is done; a lake sorts itself."""
        if not self.spec.is_lake:
            with self.using("sort") as connection:
                yield from sort_old(connection, now, settled=timedelta(0))

    def files(self) -> LakeFiles | None:
        """Return the current files of a lake; None for a store that is no lake."""
        with self.using("tidy") as connection:
            return lake_files(connection) if self.spec.is_lake else None

    @contextmanager
    def using(self, work: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection that is closed on exit; `work` is the verb for errors of DuckDB."""
        with closing(self.connect()) as connection:
            try:
                yield connection
            except duckdb.Error as error:
                problem, remedy = explain(self.spec, str(error), read_only=self.read_only)
                raise StoreError(
                    problem if remedy else f"cannot {work} the store {self.spec}: {error}", remedy
                ) from error

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection in one transaction, which is committed on exit; a failure leaves the store as it was."""
        with closing(self.connect()) as connection:
            try:
                with transaction(connection):
                    yield connection
            except duckdb.Error as error:
                raise StoreError(f"{error}; the store {self.spec} is unchanged".replace("\n", " ")) from error

    def close(self) -> None:
        """Close the store. Committed rows are safe with or without this.

        DuckDB ignores a full disk here; its write-ahead log then still has rows that the file lacks.
        """
        self._instance.close()
        if self.read_only or self.spec.kind is Kind.SHARED:
            return
        log = self.spec.path.with_name(f"{self.spec.path.name}.wal")
        if log.exists():
            _LOG.warning("%s has rows that %s lacks: keep both together; is the disk full?", log, self.spec.path.name)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # the error says more than a warning
            self._instance.close()


def _upgrade(instance: Instance, spec: StoreSpec, migrations: Sequence[Migration], now: Callable[[], datetime]) -> None:
    connection = instance.connection
    finish = lay_out if spec.kind is Kind.SHARED else None
    if finish:
        check_clock(connection, LAKE, now())
    while (version := check_version(connection, migrations)) < migrations[-1].version:
        try:
            retry_conflicts(lambda: migrate(connection, migrations, now(), finish=finish))
        except duckdb.Error:
            # Where several collectors upgrade a store at once, one succeeds and the others fail in one way or another;
            # then they have nothing left to do.
            if stored_version(connection) == version:
                raise
