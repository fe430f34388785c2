"""Descriptions of tables and columns: the comments in schema/*.sql, with names and types from DuckDB."""

import re
from dataclasses import dataclass, field

import duckdb

from gpuagent_collector.schema import load_migrations

_CREATE = re.compile(r"CREATE (?:OR REPLACE )?(?:TABLE|VIEW) (?:IF NOT EXISTS )?(\w+)")
_BASE = re.compile(r"\bFROM (\w+)")
_COLUMN = re.compile(r"(?:ALTER TABLE (\w+) ADD COLUMN |\s+)([^-]+?)[,;]?\s*-- ?([^|]*)\|([^|]*)\|([^|]*)")
_RENAMED = re.compile(r"\bAS (\w+)$")
_NAMED = re.compile(r"(?:\w+\.)?(\w+)")

_COLUMNS = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY column_index"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDoc:
    """One column. None means undocumented; a unit of None also means a plain number or text."""

    table: str
    column: str
    type: str
    unit: str | None
    definition: str | None
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDoc:
    """One table or view."""

    name: str
    definition: str
    columns: tuple[ColumnDoc, ...]


@dataclass(slots=True, kw_only=True)
class _Comments:
    """Comments in the SQL on one table or view; `base` is the table that a view selects from."""

    definition: str
    base: str | None = None
    columns: dict[str, tuple[str, str, str]] = field(default_factory=dict)


def describe_store() -> tuple[TableDoc, ...]:
    """Return the tables and views of the newest schema, in the order of the SQL files, without a store."""
    migrations = load_migrations()
    comments = _read_comments("\n".join(migration.sql for migration in migrations))
    with duckdb.connect() as connection:
        for migration in migrations:
            connection.execute(migration.sql)
        columns = connection.execute(_COLUMNS).fetchall()
    return tuple(
        TableDoc(
            name=name,
            definition=about.definition,
            columns=tuple(_describe(comments, *column) for column in columns if column[0] == name),
        )
        for name, about in comments.items()
    )


def _read_comments(sql: str) -> dict[str, _Comments]:
    """Return the comments on each table and view of the migrations."""
    relations: dict[str, _Comments] = {}
    current = _Comments(definition="")
    above: list[str] = []
    for line in sql.splitlines():
        if created := _CREATE.match(line):
            current = relations[created[1]] = _Comments(definition=" ".join(above))
        elif column := _COLUMN.match(line):
            table, code, *docs = column.groups()
            unit, definition, source = map(str.strip, docs)
            (relations[table] if table else current).columns[_column_name(code)] = unit, definition, source
        elif current.base is None and (base := _BASE.search(line)):
            current.base = base[1]
        above = [*above, line.removeprefix("--").strip()] if line.startswith("--") else []
    return relations


def _column_name(code: str) -> str:
    """Return the name that `code` gives a column: `name TYPE`, `table.name`, or `expression AS name`."""
    found = _RENAMED.search(code) or _NAMED.match(code)
    return found[1] if found else code


def _describe(comments: dict[str, _Comments], table: str, column: str, kind: str) -> ColumnDoc:
    """Describe a column by its own comment, or by that of the table from which its view takes it."""
    own = comments[table]
    base = comments.get(own.base or "")
    docs = own.columns.get(column) or (base.columns.get(column) if base else None)
    unit, definition, source = docs or (None, None, None)
    short = kind.partition("(")[0]  # the fields of a STRUCT are described at its table
    return ColumnDoc(table=table, column=column, type=short, unit=unit or None, definition=definition, source=source)
