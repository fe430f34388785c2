"""What is exchanged: every table of the schema but those that only say what one collector did."""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from gpuagent_collector.schema import load_migrations, migrate
from gpuagent_collector.store.columns import ROLLUPS, SAMPLES, table_columns
from gpuagent_collector.times import utc_now

# A mark says that a collector has all of a session up to a number, which is not so of one that got an excerpt; there
# it would hide what the session's agent still sends.
KEPT_HERE = frozenset({"commits", "marks", "schema_migrations", "session_owners"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedTable:
    """A table whose rows travel."""

    name: str
    # Column → DuckDB type, in the table's order.
    types: Mapping[str, str]
    # The same columns as Arrow has them.
    schema: pa.Schema

    @property
    def clock(self) -> str:
        """The column that says when a row happened."""
        return next(column for column, data_type in self.types.items() if data_type == "TIMESTAMP")

    @property
    def is_of_runs(self) -> bool:
        """Whether rows can name a run that they belong to."""
        return "run_id" in self.types

    @property
    def is_computed(self) -> bool:
        """Whether the rows were computed from others, and follow from them."""
        return "computed_at" in self.types

    @property
    def is_samples(self) -> bool:
        """Whether rows that name no run belong to those that ran on their node at that time."""
        return self.name.endswith((SAMPLES, ROLLUPS))

    @property
    def is_of_sessions(self) -> bool:
        """Whether rows describe an agent process and what it found."""
        return not (self.is_of_runs or self.is_samples)


def newest_version() -> int:
    """Return the version of the schema that this collector writes."""
    return load_migrations()[-1].version


def exchanged_tables(version: int) -> dict[str, ExchangedTable]:
    """Return the tables of a version of the schema that are exchanged. Needs no store."""
    with duckdb.connect() as connection:
        migrate(connection, [each for each in load_migrations() if each.version <= version], utc_now())
        tables = table_columns(connection)
        return {
            name: ExchangedTable(name=name, types=tables[name], schema=_arrow_schema(connection, name))
            for name in sorted(tables.keys() - KEPT_HERE)
        }


def _arrow_schema(connection: duckdb.DuckDBPyConnection, table: str) -> pa.Schema:
    return connection.execute(f'FROM "{table}" LIMIT 0').to_arrow_table().schema
