"""Exchanged tables: all tables of the schema except the records of one collector's own work."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import duckdb
import pyarrow as pa

from gpuagent_collector.schema import load_migrations, migrate
from gpuagent_collector.store.columns import ROLLUPS, SAMPLES, table_columns
from gpuagent_collector.times import utc_now

# A mark says that a collector has all of a session up to a number. That is false for one that imported an excerpt:
# there the mark would hide what the session's agent still sends.
KEPT_HERE = frozenset({"commits", "marks", "schema_migrations", "session_owners", "sortings"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedTable:
    """A table whose rows are exchanged."""

    name: str
    # Column → DuckDB type, in the table's order.
    types: Mapping[str, str]
    # The same columns in Arrow.
    schema: pa.Schema

    @property
    def clock(self) -> str:
        """Return the column with the time of a row."""
        return next(column for column, data_type in self.types.items() if data_type == "TIMESTAMP")

    @property
    def is_of_runs(self) -> bool:
        """Return whether rows can name the run that they belong to."""
        return "run_id" in self.types

    @property
    def is_computed(self) -> bool:
        """Return whether the rows were computed from others."""
        return "computed_at" in self.types

    @property
    def is_samples(self) -> bool:
        """Return whether rows without a run belong to the runs on their node at that time."""
        return self.name.endswith((SAMPLES, ROLLUPS))

    @property
    def is_of_sessions(self) -> bool:
        """Return whether rows describe an agent process and its findings."""
        return not (self.is_of_runs or self.is_samples)


def newest_version() -> int:
    """Return the version of the schema that this collector writes."""
    return load_migrations()[-1].version


@cache
def exchanged_tables(version: int) -> Mapping[str, ExchangedTable]:
    """Return the exchanged tables of a version of the schema, without a store."""
    with duckdb.connect() as connection:
        migrate(connection, [each for each in load_migrations() if each.version <= version], utc_now())
        tables = table_columns(connection)
        return {
            name: ExchangedTable(
                name=name,
                types=tables[name],
                schema=connection.execute(f'FROM "{name}" LIMIT 0').to_arrow_table().schema,
            )
            for name in sorted(tables.keys() - KEPT_HERE)
        }
