"""A reader of a store that no collector holds."""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa

from gpuagent_collector.query.answer import Answer
from gpuagent_collector.query.execute import Execution, Limits, Parameter
from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.query.snapshot import TableRows, tables_of
from gpuagent_collector.store import Store, StoreSpec

_FREE_SHARE = """
SELECT free_blocks / greatest(total_blocks, 1) FROM pragma_database_size() WHERE database_name = current_database()
"""


class FileReader:
    """A reader that opens the store itself, behind the same guard as a collector's queries."""

    def __init__(self, spec: StoreSpec, *, older: bool = False, memory_bytes: int | None = None) -> None:
        """Open the store read-only.

        Args:
            spec: the store.
            older: accept a schema that is older than this collector's.
            memory_bytes: limit of memory; None: half of the machine's or the container's.

        Raises:
            StoreError: it cannot be opened, or a running collector holds it.
        """
        self.source = f"the store {spec}"
        self.part: str | None = None
        self.trouble: str | None = None
        self._store = Store.open(spec, read_only=True, older=older, memory_bytes=memory_bytes)
        with self._store.connect() as connection:
            self._guard = Guard(store_relations(connection))
        # Ctrl-C reaches the main thread only while it waits in Python, not inside DuckDB.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="query")

    @contextmanager
    def stream(self, query: str, parameters: Sequence[Parameter] = ()) -> Iterator[Answer]:
        """Execute one readable statement; its rows can be read inside the `with` block."""
        execution = Execution(self._store.connect, Limits())
        try:
            rows = self._thread.submit(execution.start, self._guard.check(query), parameters).result()
            waited = pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))
            yield Answer(waited, lambda: execution.truncated)
        finally:
            execution.close()

    def sql(self, query: str, parameters: Sequence[Parameter] = ()) -> pa.Table:
        """Return the whole answer of one readable statement."""
        with self.stream(query, parameters) as answer:
            return answer.whole()

    def snapshot(self) -> Generator[TableRows, None, None]:
        """Yield every table of the store, all of the same moment."""
        return tables_of(self._store)

    def free_share(self) -> float:
        """Return the share of a file's blocks that hold no rows."""
        with self._store.using("read") as connection:
            ((share,),) = connection.execute(_FREE_SHARE).fetchall()
        return float(share)

    def close(self) -> None:
        """Close the store."""
        self._thread.shutdown()
        self._store.close()

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while (batch := self._thread.submit(next, rows, None).result()) is not None:
            yield batch
