"""The rows that a query returns, as they come."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from gpuagent_collector.errors import CollectorError


class Answer:
    """Batches of rows that can be taken once, in order."""

    def __init__(self, rows: pa.RecordBatchReader, truncated: Callable[[], bool]) -> None:
        self._rows = rows
        self._truncated = truncated
        self.schema: pa.Schema = rows.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._rows)

    @property
    def truncated(self) -> bool:
        """Whether a row limit cut the answer short; known when the batches are exhausted."""
        return self._truncated()

    def whole(self) -> pa.Table:
        """Return all rows.

        Raises:
            CollectorError: a row limit cut the answer short, so that figures made of it would be wrong.
        """
        table = pa.Table.from_batches(list(self), self.schema)
        if self.truncated:
            raise CollectorError(f"the answer has more than the {table.num_rows:,} rows that the collector gives")
        return table
