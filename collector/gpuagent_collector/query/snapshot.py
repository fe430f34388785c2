"""Every table of a store at one moment, while others write, and what users made in it."""

from collections.abc import Generator
from dataclasses import asdict

import pyarrow as pa

from gpuagent_collector.query.execute import BATCH_ROWS
from gpuagent_collector.store import Store
from gpuagent_collector.store.columns import table_columns
from gpuagent_collector.store.user_objects import UserObject, newest_columns, user_objects

# A table's name and its rows, which must be read before the next table. The name of a user's table is quoted.
TableRows = tuple[str, pa.RecordBatchReader]

# In place of a table: the objects of users. Their tables follow.
USER_OBJECTS = "user objects"


def tables_of(store: Store) -> Generator[TableRows, None, None]:
    """Yield each table of the schema, then the users' own, in one transaction that lasts as long as the iterator.

    Raises StoreError: the store cannot be read; reading a table's rows raises duckdb.Error or OSError.
    """
    with store.using("read") as connection:
        connection.execute("BEGIN TRANSACTION READ ONLY")
        for table, columns in sorted(table_columns(connection).items()):
            names = ", ".join(f'"{name}"' for name in newest_columns()[table] if name in columns)
            yield table, connection.execute(f'SELECT {names} FROM "{table}"').to_arrow_reader(BATCH_ROWS)  # noqa: S608 - names of the schema
        if objects := user_objects(connection):
            schema = pa.schema([(name, pa.string()) for name in ("kind", "name", "sql")])
            yield USER_OBJECTS, pa.Table.from_pylist([asdict(each) for each in objects], schema).to_reader()
        for each in objects:
            if each.kind == "table":
                yield each.name, connection.execute(f"FROM {each.name}").to_arrow_reader(BATCH_ROWS)


def read_objects(rows: pa.RecordBatchReader) -> list[UserObject]:
    """Return the objects that a snapshot has under the name USER_OBJECTS."""
    return [UserObject(**row) for row in rows.read_all().to_pylist()]
