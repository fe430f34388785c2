"""The rows of a query as a stream."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from gpuagent_common.errors import GpuAgentError


class Answer:
    """Batches of rows that can be read once, in order."""

    def __init__(self, rows: pa.RecordBatchReader, truncated: Callable[[], bool]) -> None:
        self._rows = rows
        self._truncated = truncated
        self._exhausted = False
        self.schema: pa.Schema = rows.schema
        # Of the batches read so far.
        self.rows = 0
        # The same in Arrow's memory.
        self.size_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            self.rows += batch.num_rows
            self.size_bytes += batch.nbytes
            yield batch
        self._exhausted = True

    @property
    def truncated(self) -> bool:
        """True if a limit cut the answer short; known once all batches have been read."""
        return self._exhausted and self._truncated()

    def whole(self) -> pa.Table:
        """Return all rows.

        Raises:
            GpuAgentError: a limit cut the answer short; figures made of it would be wrong.
        """
        table = pa.Table.from_batches(list(self), self.schema)
        if self.truncated:
            raise GpuAgentError(f"the answer is cut at {table.num_rows:,} rows by the collector's limit; ask for less")
        return table
