"""Objects that users made in a store, beside those of its schema: tables, views, indexes and others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import duckdb

from gpuagent_collector.schema import load_migrations, migrate, schema_relations
from gpuagent_collector.store.columns import Columns, quoted, table_columns
from gpuagent_collector.times import utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class UserObject:
    """One object.

    Attributes:
        kind: such as table, view or index; comment: one on such an object.
        name: as SQL writes it: quoted, with its schema unless that is main.
        sql: the statement that makes it; None: DuckDB does not show it whole, such as defaults of a macro's arguments.
    """

    kind: str
    name: str
    sql: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name.replace(chr(34), '')}"


_HERE = "database_name = current_database()"
_OTHERS = f"{_HERE} AND NOT internal AND NOT temporary AND NOT (schema_name = 'main' AND list_contains($known, {{}}))"

# In the order in which they can be made again; of one kind, in that of their creation.
_OBJECTS = f"""
SELECT 1 AS turn, oid, 'schema' AS kind, schema_name, NULL AS name, NULL AS sql
FROM duckdb_schemas() WHERE {_HERE} AND NOT internal AND schema_name <> 'main'
UNION ALL
SELECT 2, type_oid, 'type', schema_name, type_name, NULL FROM duckdb_types() WHERE {_HERE} AND NOT internal
UNION ALL
SELECT DISTINCT 3, function_oid, 'macro', schema_name, function_name, NULL
FROM duckdb_functions() WHERE {_HERE} AND NOT internal
UNION ALL
SELECT 4, sequence_oid, 'sequence', schema_name, sequence_name, concat_ws(
    ' ', 'INCREMENT BY', increment_by, 'MINVALUE', min_value, 'MAXVALUE', max_value,
    -- The column last_value is the next one in a file that was opened since (DuckDB 1.5).
    'START', regexp_extract(sql, 'START (-?[0-9]+) (NO )?CYCLE;$', 1), if(cycle, 'CYCLE', NULL)
)
FROM duckdb_sequences() WHERE {_HERE} AND NOT temporary
UNION ALL
SELECT 5, table_oid, 'table', schema_name, table_name, sql FROM duckdb_tables() WHERE {_OTHERS.format("table_name")}
UNION ALL
SELECT 6, view_oid, 'view', schema_name, view_name, sql FROM duckdb_views() WHERE {_OTHERS.format("view_name")}
UNION ALL
SELECT 7, index_oid, 'index', schema_name, index_name, sql FROM duckdb_indexes() WHERE {_HERE}
ORDER BY turn, oid
"""  # noqa: S608 - constant texts

# On tables and views of the schema too. Macros, whose comments are left out here, are in no copy.
_COMMENTS = f"""
SELECT 'table', schema_name, [table_name], comment FROM duckdb_tables() WHERE {_HERE} AND comment IS NOT NULL
UNION ALL
SELECT 'view', schema_name, [view_name], comment FROM duckdb_views() WHERE {_HERE} AND comment IS NOT NULL
UNION ALL
SELECT 'column', schema_name, [table_name, column_name], comment
FROM duckdb_columns() WHERE {_HERE} AND comment IS NOT NULL
UNION ALL
SELECT 'index', schema_name, [index_name], comment FROM duckdb_indexes() WHERE {_HERE} AND comment IS NOT NULL
UNION ALL
SELECT 'sequence', schema_name, [sequence_name], comment FROM duckdb_sequences() WHERE {_HERE} AND comment IS NOT NULL
UNION ALL
SELECT 'type', schema_name, [type_name], comment FROM duckdb_types() WHERE {_HERE} AND comment IS NOT NULL
ORDER BY ALL
"""  # noqa: S608 - constant texts


def user_objects(connection: duckdb.DuckDBPyConnection) -> list[UserObject]:
    """Return the objects of users, in an order in which most can be made again. Raises duckdb.Error."""
    rows = connection.execute(_OBJECTS, {"known": list(schema_relations())}).fetchall()
    found = []
    for _, _, kind, schema, name, shown in rows:  # of a sequence, the end of the statement is shown
        full_name = ".".join(_quoted(part) for part in (schema, name)[schema == "main" :] if part is not None)
        sql = shown
        if kind == "schema":
            sql = f"CREATE SCHEMA {full_name}"
        elif kind == "sequence":
            sql = f"CREATE SEQUENCE {full_name} {shown}"
        elif kind == "type":
            ((definition,),) = connection.execute(f"SELECT typeof(CAST(NULL AS {full_name}))").fetchall()
            sql = f"CREATE TYPE {full_name} AS {definition}"
        found.append(UserObject(kind=kind, name=full_name, sql=sql))
    for table, columns in table_columns(connection).items():
        added = columns.keys() - newest_columns()[table].keys()
        found += [UserObject(kind="column", name=f"{_quoted(table)}.{_quoted(name)}") for name in sorted(added)]
    for kind, schema, names, comment in connection.execute(_COMMENTS).fetchall():
        on = f"{kind} {'.'.join(map(_quoted, names if schema == 'main' else [schema, *names]))}"
        sql = f"COMMENT ON {on} IS {quoted(comment)}"
        found.append(UserObject(kind="comment", name=f"on {on}", sql=sql))
    return found


@cache
def newest_columns() -> Mapping[str, Columns]:
    """Return the columns of the newest schema's tables, without a store."""
    with duckdb.connect() as connection:
        migrate(connection, load_migrations(), utc_now())
        return table_columns(connection)


def make_objects(connection: duckdb.DuckDBPyConnection, objects: Iterable[UserObject]) -> list[UserObject]:
    """Make the objects, and return those that cannot be made, such as a view of a table that is gone."""
    waiting = list(objects)
    while True:
        failed = [each for each in waiting if not _make(connection, each)]
        # A view may use one that was made after it.
        if len(failed) == len(waiting):
            return failed
        waiting = failed


def _make(connection: duckdb.DuckDBPyConnection, each: UserObject) -> bool:
    if each.sql is None:
        return False
    try:
        connection.execute(each.sql)
    except duckdb.Error:
        return False
    return True


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
