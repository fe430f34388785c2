"""Reading of large tables by queries with bounded answers, because a collector truncates long ones."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from gpuagent_collector.exchange.belongings import Belongings
from gpuagent_collector.exchange.tables import ExchangedTable
from gpuagent_collector.query.reader import StreamingReader
from gpuagent_common.errors import GpuAgentError

# Stretches of time with more rows are divided: some 100 MB of the widest table. A collector's limit is a million rows.
SLICE_ROWS = 400_000

# Parts of one stretch of time in one query.
_MOST_PARTS = 1000

# Hexadecimal digits of a row's hash; equal rows have equal hashes, so no number of digits divides them.
_LEVELS = 16

_EXTENT = """
SELECT count(*) AS rows, count(*) - count("{clock}") AS timeless,
       epoch_us(min("{clock}")) AS first, epoch_us(max("{clock}")) AS last
FROM "{table}" WHERE {condition}
"""

_PARTS = """
SELECT (epoch_us("{clock}") - {start}) // {width} AS part, count(*) AS rows
FROM "{table}" WHERE {condition} GROUP BY part ORDER BY part
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicer:
    """Reads the selected rows of one table, each once. Equal rows are always in the same slice.

    Raises (every method):
        GpuAgentError: the store cannot be read, or has more equal rows than a query may return.
    """

    reader: StreamingReader
    table: ExchangedTable
    belongings: Belongings

    def slices(self) -> Iterator[pa.Table]:
        """Yield non-empty slices by stretches of time, rows without a time first."""
        extent = self._ask(_EXTENT)[0]
        if extent["timeless"]:
            yield from self._shares(f'"{self.table.clock}" IS NULL')
        if timed := extent["rows"] - extent["timeless"]:
            yield from self._stretch(extent["first"], extent["last"] + 1, timed)

    def _stretch(self, start: int, end: int, rows: int) -> Iterator[pa.Table]:
        """Yield the rows from `start` to before `end`, in microseconds since the Unix epoch."""
        if rows > SLICE_ROWS and end - start > 1:
            yield from self._divide(start, end, parts=min(_MOST_PARTS, 1 + 4 * rows // SLICE_ROWS))
        elif end - start == 1:
            yield from self._shares(self._between(start, end))
        elif (answer := self._fetch(self._between(start, end))) is not None:
            yield answer
        else:
            yield from self._divide(start, end, parts=2)

    def _divide(self, start: int, end: int, *, parts: int) -> Iterator[pa.Table]:
        width = -(-(end - start) // parts)
        for part in self._ask(_PARTS, within=self._between(start, end), start=start, width=width):
            first = start + part["part"] * width
            yield from self._stretch(first, min(end, first + width), part["rows"])

    def _between(self, start: int, end: int) -> str:
        clock = self.table.clock
        return f'"{clock}" >= make_timestamp({start}) AND "{clock}" < make_timestamp({end})'

    def _shares(self, within: str, level: int = 0) -> Iterator[pa.Table]:
        """Yield slices of rows with one time, such as figures of runs that were computed together."""
        answer = self._fetch(within)
        if answer is not None:
            yield from [answer] if answer.num_rows else []
        elif level == _LEVELS:
            raise GpuAgentError(
                f"{self.table.name} has more equal rows than the collector returns at once; "
                "stop the collector and read its --store FILE"
            )
        else:
            for share in range(16):
                digit = f"(hash({self._columns}) >> {4 * level}) & 15"
                yield from self._shares(f"{within} AND {digit} = {share}", level + 1)

    @property
    def _columns(self) -> str:
        return ", ".join(f'"{column}"' for column in self.table.types)

    def _fetch(self, within: str) -> pa.Table | None:
        """Return the rows within; None if the collector truncated the answer."""
        condition, values = self.belongings.condition(self.table, within)
        with self.reader.stream(f'SELECT {self._columns} FROM "{self.table.name}" WHERE {condition}', values) as answer:  # noqa: S608 - names of the schema
            batches = list(answer)
            return None if answer.truncated else pa.Table.from_batches(batches, answer.schema)

    def _ask(self, sql: str, *, within: str = "true", **numbers: int) -> list[dict[str, int]]:
        condition, values = self.belongings.condition(self.table, within)
        names = {"table": self.table.name, "clock": self.table.clock}
        return self.reader.sql(sql.format(condition=condition, **names, **numbers), values).to_pylist()
