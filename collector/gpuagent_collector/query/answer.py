"""The rows that a query returns, as they come."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from gpuagent_common.errors import GpuAgentError


class Answer:
    """Batches of rows that can be taken once, in order."""

    def __init__(self, rows: pa.RecordBatchReader, truncated: Callable[[], bool]) -> None:
        self._rows = rows
        self._truncated = truncated
        self._exhausted = False
        self.schema: pa.Schema = rows.schema
        # How many have been taken.
        self.rows = 0
        # Of those that have been taken, as Arrow holds them.
        self.size_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            self.rows += batch.num_rows
            self.size_bytes += batch.nbytes
            yield batch
        self._exhausted = True

    @property
    def truncated(self) -> bool:
        """Whether a limit cut the answer short. It is known, and asked, only when all batches have been taken."""
        return self._exhausted and self._truncated()

    def whole(self) -> pa.Table:
        """Return all rows.

        Raises:
            GpuAgentError: a limit cut the answer short, so that figures made of it would be wrong.
        """
        table = pa.Table.from_batches(list(self), self.schema)
        if self.truncated:
            raise GpuAgentError(f"the answer has more than the {table.num_rows:,} rows that the collector gives of it")
        return table
