"""The columns that an expression of a statement can name, and the size of their values."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import duckdb

from gpuagent_collector.query.sizes import SMALL, cast_size
from gpuagent_collector.store.columns import USUAL_TEXT_BYTES
from gpuagent_common.errors import MisuseError

Tree = Mapping[str, Any]

# A text of the store; see `LongestTexts` for those that are longer.
TEXT_BYTES = USUAL_TEXT_BYTES

# The name of a column that DuckDB makes of an expression, such as `count(x)`.
_MADE = "?"


@dataclass(frozen=True, slots=True)
class Column:
    """A column that an expression can name.

    Attributes:
        name: in lower case; _MADE: one that DuckDB makes; empty: any.
        size: bytes of a value.
        name_bytes: of a name that DuckDB makes: it is in texts and types of rows, as any column's is.
    """

    relation: str
    name: str
    size: float
    name_bytes: int = 0

    @property
    def field_size(self) -> float:
        """Return the bytes of a value with its name."""
        return self.size + max(self.name_bytes, len(self.name.encode()))


_COLUMNS = """
SELECT lower(table_name), lower(column_name), data_type FROM duckdb_columns()
WHERE database_name = current_database() AND schema_name = current_schema() AND NOT internal
ORDER BY column_index
"""


def store_columns(connection: duckdb.DuckDBPyConnection) -> Mapping[str, Sequence[Column]]:
    """Return the columns of the tables and views of the connection's default database, by relation in lower case."""
    found: dict[str, list[Column]] = {}
    for table, name, kind in connection.execute(_COLUMNS).fetchall():
        try:
            size = cast_size({"id": kind.split("(")[0]}, TEXT_BYTES)
        except MisuseError:
            size = TEXT_BYTES
        found.setdefault(table, []).append(Column(table, name, min(size, TEXT_BYTES)))
    return found


def with_longest(relations: Mapping[str, Sequence[Column]], longest: Mapping[str, int]) -> dict[str, Sequence[Column]]:
    """Return the columns of a store with the sizes of the longest texts in columns of their names."""
    return {
        relation: [
            replace(column, size=max(column.size, longest.get(column.name, 0))) if column.size > SMALL else column
            for column in columns
        ]
        for relation, columns in relations.items()
    }


def renamed_columns(columns: Sequence[Column], relation: str, names: Sequence[str]) -> list[Column]:
    """Return columns under the alias of their relation, the first ones under other names."""
    relation = relation.lower()
    pairs = zip_longest(columns, names[: len(columns)])
    return [replace(column, relation=relation, name=(name or column.name).lower()) for column, name in pairs]


def item_column(item: Tree, size: float) -> Column:
    """Return the column of an item of a SELECT list whose value has this size."""
    if item["class"] == "FUNCTION" and item["function_name"].lower() == "unnest":
        return Column("", "", size)
    name = given_name(item)
    # DuckDB names it by its text, which is shorter than its tree.
    return Column("", name.lower(), size) if name else Column("", _MADE, size, len(json.dumps(item)))


def given_name(item: Tree) -> str:
    """Return the name that an expression has as a column, or as a field of a struct; empty: none."""
    alias = item.get("alias") or ""
    if not alias and item["class"] == "COLUMN_REF":
        alias = item["column_names"][-1]
    return str(alias)


def column_size(names: Sequence[str], columns: Sequence[Column]) -> float:
    """Return the most bytes of what a name can mean: a column, its field, or a whole row."""
    parts = {name.lower() for name in names} | {""}
    if not all(map(str.isidentifier, names)):
        parts.add(_MADE)
    sizes = [column.size for column in columns if column.name in parts]
    if len(names) == 1 or not sizes:
        row = [column.field_size for column in columns if column.relation and column.relation in parts]
        sizes += [sum(row)] if row else []
    return max(sizes) if sizes else max(TEXT_BYTES, sum(column.field_size for column in columns))
