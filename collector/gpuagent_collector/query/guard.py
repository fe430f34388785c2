"""The guard, which allows single statements that only read the store.

DuckDB parses the statement, and the guard walks its syntax tree: only known kinds of nodes, tables of the store and
functions without side effects pass. A function that DuckDB adds later is rejected. This is the first of three fences.
The second is a read-only transaction, the third an instance without external access and with a locked configuration.
What a viewer's statement may cost is bounded in `growth.py`.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Any

import duckdb

from gpuagent_collector.query.sizes import constant
from gpuagent_common.errors import MisuseError

# Table functions that depend on their arguments alone. All others read files, other catalogs or settings, run SQL
# from a string (`query`, `query_table`, `json_execute_serialized_sql`) or write (`checkpoint`, `enable_logging`).
TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})

# The only allowed functions whose result changes from row to row: they have no side effects. The others advance
# sequences (`nextval`), write (`write_log`), wait (`sleep_ms`) or set the seed of later queries (`setseed`).
_VOLATILE = frozenset({"error", "gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})

# Functions that DuckDB calls pure although they read more than their arguments.
_IMPURE = frozenset(
    {
        "current_setting",  # settings can hold paths and credentials
        "get_block_size",  # reads the list of attached databases
        "getenv",  # part of DuckDB's own shell, not of the library; named to keep it out
        "getvariable",  # a variable of another query on the connection
        "json_serialize_plan",  # plans SQL from a string, which opens the files it names
        "txid_current",  # counts the transactions of all users
        "vector_type",  # an internal of DuckDB
    }
)

# Functions with unbounded time or memory: DuckDB interrupts no function at work, and counts none of the memory that
# one allocates against its limit.
_UNSTOPPABLE = frozenset(
    {
        *("damerau_levenshtein", "editdist3", "levenshtein"),  # quadratic in the length of their texts
        *("hamming", "mismatches"),
        *("jaro_similarity", "jaro_winkler_similarity"),
        *("array_resize", "bitstring", "list_resize"),  # a short call allocates gigabytes
        # DuckDB makes a VARIANT of JSON in as many calls as it has levels, and crashes without a stack.
        *("variant_bytes_to_variant", "variant_extract", "variant_normalize", "variant_to_parquet_variant"),
        "variant_typeof",
    }
)

# The most characters, elements or repetitions that the functions below may be asked for.
LARGEST_SIZE = 10_000

# Functions that make a value of any size → the arguments with that size.
_SIZES: Mapping[str, slice] = {
    "generate_series": slice(None),
    "lpad": slice(1, 2),
    "range": slice(None),
    "repeat": slice(1, 2),
    "rpad": slice(1, 2),
}

# Functions with a type as JSON. DuckDB reads it in as many calls as it has levels, and crashes without a stack.
_DESCRIBING = frozenset({"from_json", "from_json_strict", "json_transform", "json_transform_strict"})

# A width of more than three digits, or one that is an argument.
_WIDE = re.compile(r"\d{4}|\*|\{[^{}]*\{")

# `pg_catalog` is left out: its macros look at catalogs, and one sleeps.
_PURE_QUERY = """
    SELECT DISTINCT lower(function_name)
    FROM duckdb_functions()
    WHERE schema_name = 'main' AND internal
      AND (function_type = 'macro' OR (function_type IN ('scalar', 'aggregate') AND stability <> 'VOLATILE'))
"""


@cache
def scalar_functions(bare: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the names of scalar, aggregate and window functions that depend on their arguments and the time alone.

    `bare` is a connection to an empty database without extensions, so that no function of an extension gets in.
    """
    pure = {name for (name,) in bare.execute(_PURE_QUERY).fetchall()}
    # `unnest` is not listed as a scalar function, but allowed in a SELECT list.
    return frozenset((pure | _VOLATILE | {"unnest"}) - _IMPURE - _UNSTOPPABLE)


def check_size(name: str, arguments: Sequence[Mapping[str, Any]]) -> None:
    """Reject a call, outside of FROM, of a function whose result is large or of unknown size.

    Args:
        name: the function's, in lower case.
        arguments: nodes of the syntax tree.

    Raises:
        MisuseError: the call is not allowed.
    """
    if not all(map(_is_size, arguments[_SIZES.get(name, slice(0))])):
        instead = f", or FROM {name}(…)" if name in TABLE_FUNCTIONS else ""
        raise MisuseError(f"{name} takes sizes up to {LARGEST_SIZE:,} here, written as numbers{instead}")
    if name in _DESCRIBING and len(arguments) > 1:
        described = constant(arguments[1])
        if not isinstance(described, str) or len(described) > LARGEST_SIZE:
            raise MisuseError(f"{name} takes a constant type of up to {LARGEST_SIZE:,} characters here")
    if name in {"format", "printf"} and arguments:
        text = constant(arguments[0])
        if not isinstance(text, str) or _WIDE.search(text):
            raise MisuseError(f"{name} takes a constant text here, with widths of at most three digits")


def _is_size(node: Mapping[str, Any]) -> bool:
    size = constant(node)
    return isinstance(size, int) and abs(size) <= LARGEST_SIZE


# A longer statement is rejected: the walk of its syntax tree would delay the collector's agents.
MAX_SQL_CHARACTERS = 100_000

# A longer statement is rejected: DuckDB's time and memory grow with the square of, say, the SELECTs of a UNION.
MAX_TOKENS = 5_000

_KINDS = frozenset(
    {
        # queries
        *("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"),
        # in FROM
        *("BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION"),
        # ORDER BY, LIMIT and their like
        *("ASCENDING", "DESCENDING", "ORDER_DEFAULT"),
        *("DISTINCT_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "ORDER_MODIFIER"),
    }
)
_EXPRESSIONS = frozenset(
    {
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "DEFAULT"),
        *("FUNCTION", "LAMBDA", "LAMBDA_REF", "OPERATOR", "PARAMETER", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY"),
        *("TYPE", "WINDOW"),
    }
)
_ONLY_READS = "a query cannot change anything; use one SELECT, EXPLAIN, DESCRIBE, SUMMARIZE or SHOW TABLES"
_PIVOT_NEEDS_VALUES = "PIVOT needs a list of values: PIVOT … ON column IN ('a', 'b') USING …"

Tree = dict[str, Any]


_RELATIONS = """
SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() AND schema_name = current_schema()
UNION ALL
SELECT view_name FROM duckdb_views()
WHERE database_name = current_database() AND schema_name = current_schema() AND NOT internal
"""


def store_relations(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the names of the tables and views of the connection's default database."""
    return frozenset(name for (name,) in connection.execute(_RELATIONS).fetchall())


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement that only reads the store.

    `tree` is its syntax tree, of an EXPLAIN that of the statement explained.
    """

    sql: str
    tree: Tree


@cache
def open_parser() -> duckdb.DuckDBPyConnection:
    """Return an empty database that parses all statements: to open one takes longer than most answers."""
    # More threads would only wait.
    return duckdb.connect(config={"enable_external_access": "false", "threads": 1})


class Guard:
    """A checker of statements against the tables of one store, safe for several threads."""

    def __init__(self, relations: Collection[str], *, explain: bool = True) -> None:
        """Allow these tables and views, and EXPLAIN unless `explain` is False: plans are computed from all rows."""
        self._explain = explain
        self._relations = frozenset(name.lower() for name in relations)
        self._parser = open_parser()
        self._functions = scalar_functions(self._parser)

    def check(self, sql: str) -> str:
        """Return the statement to execute; see `read`."""
        return self.read(sql).sql

    def read(self, sql: str) -> Statement:
        """Return the statement to execute, with its syntax tree.

        Raises MisuseError: it is not one statement that only reads the store.
        """
        check_text(sql)
        prefix, query = _split_explain(sql)
        if prefix and not self._explain:
            raise MisuseError("a token with --platform or --label cannot use EXPLAIN: plans are computed from all rows")
        try:
            # As a literal: where pandas is installed, DuckDB imports it for a parameter, which takes 0.3 s.
            text = query.replace("'", "''")
            row = self._parser.cursor().execute(f"SELECT json_serialize_sql('{text}')").fetchone()
            parsed = json.loads(row[0]) if row else {}
            if parsed.get("error"):
                if parsed["error_type"] == "parser":
                    line = query.encode()[: int(parsed.get("position", 0))].count(b"\n") + 1
                    raise MisuseError(f"{parsed['error_message']} (line {line})")
                raise MisuseError(_PIVOT_NEEDS_VALUES if "PIVOT" in query.upper().split() else _ONLY_READS)
            statements: list[Tree] = parsed.get("statements", [])
            if len(statements) != 1:
                raise MisuseError(f"the text has {len(statements)} statements; send one at a time")
            self._walk(statements[0], frozenset())
        except RecursionError:
            raise MisuseError("the statement is nested too deeply; use WITH clauses instead") from None
        return Statement(sql=prefix + query, tree=statements[0])

    def _walk(self, value: object, scope: frozenset[str]) -> None:
        """Check a part of the syntax tree; `scope` has the names defined by WITH clauses."""
        if isinstance(value, list):
            for each in value:
                self._walk(each, scope)
        elif isinstance(value, dict):
            self._check_node(value, scope)
            self._walk_children(value, scope)

    def _walk_children(self, node: Tree, scope: frozenset[str]) -> None:
        for definition in (node.get("cte_map") or {}).get("map", ()):
            self._walk(definition["value"], scope)
            scope |= {definition["key"].lower()}
        for name, child in node.items():
            if node.get("type") == "TABLE_FUNCTION" and name == "function":
                self._walk_children(child, scope)  # checked with its node: in FROM it makes rows, not one value
            elif name != "cte_map":
                # Only the second half of a recursive query can use the query's own name.
                sees_itself = node.get("type") == "RECURSIVE_CTE_NODE" and name == "right"
                self._walk(child, scope | {node["cte_name"].lower()} if sees_itself else scope)

    def _check_node(self, node: Tree, scope: frozenset[str]) -> None:
        # Kinds of syntax that nobody has reviewed are rejected. Types (`…_TYPE_INFO`) hold names and numbers only.
        kind, known = (node["class"], _EXPRESSIONS) if "class" in node else (node.get("type"), _KINDS)
        if isinstance(kind, str) and kind not in known and not kind.endswith("_TYPE_INFO"):
            raise MisuseError(f"{kind.replace('_', ' ').lower()} is not allowed in a query")
        if "function_name" in node:
            name = node["function_name"].lower()
            if name not in self._functions and name not in TABLE_FUNCTIONS:
                raise MisuseError(f"a query cannot call the function {name}{_suggest(name, self._functions)}")
            arguments: list[Tree] = node["children"]
            if node.get("schema", "") not in ("", "main"):
                # DuckDB puts the first argument of `column.function(…)` in the place of a schema.
                arguments = [{"class": "COLUMN_REF"}, *arguments]
            check_size(name, arguments)
        _check_crashes(node)
        match node.get("type"):
            case "BASE_TABLE":
                self._check_table(node, scope)
            case "SHOW_REF" if node["query"] is None and node["table_name"] != '"tables"':
                # DESCRIBE and SUMMARIZE pass; other SHOWs list other catalogs and settings.
                raise MisuseError("SHOW takes only `SHOW TABLES` and `SHOW table` here")
            case "TABLE_FUNCTION":
                name = node["function"].get("function_name", "").lower()
                if name not in TABLE_FUNCTIONS:
                    allowed = ", ".join(sorted(TABLE_FUNCTIONS))
                    raise MisuseError(f"a query cannot call the table function {name}; use {allowed}")

    def _check_table(self, node: Tree, scope: frozenset[str]) -> None:
        name, schema = node["table_name"], node["schema_name"]
        readable = self._relations if schema else self._relations | scope
        if node["catalog_name"] or schema not in ("", "main") or name.lower() not in readable:
            qualified = ".".join(part for part in (node["catalog_name"], schema, name) if part)
            hint = _suggest(name, self._relations) or "; `SHOW TABLES` and `collector schema` list the tables"
            raise MisuseError(f"the store has no table {qualified}{hint}")


def _check_crashes(node: Tree) -> None:
    """Reject what ends DuckDB's process rather than its statement."""
    if node.get("id") == "VARIANT":
        raise MisuseError("a query cannot cast to VARIANT; use JSON")
    offset = node.get("offset_expr")
    if offset is not None and not _is_size(offset):
        # DuckDB crashes where it is the least integer, also as the result of an expression.
        raise MisuseError(f"lag and lead take offsets up to {LARGEST_SIZE:,} here, written as numbers")


def check_text(sql: str) -> None:
    """Reject a text that is too long, or not UTF-8, before it is parsed. Raises MisuseError: it is."""
    if len(sql) > MAX_SQL_CHARACTERS:
        raise MisuseError(f"the statement is longer than {MAX_SQL_CHARACTERS:,} characters")
    if "\0" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise MisuseError("the statement is not valid UTF-8 text")
    if len(duckdb.tokenize(sql)) > MAX_TOKENS:
        raise MisuseError(f"the statement has more than {MAX_TOKENS:,} tokens")


def _split_explain(sql: str) -> tuple[str, str]:
    """Return ("EXPLAIN " or "EXPLAIN ANALYZE " or "", the statement after it).

    DuckDB serialises no EXPLAIN, and EXPLAIN ANALYZE runs its statement; so that statement is checked alone.
    """
    encoded = sql.encode()
    starts = [start for start, _ in duckdb.tokenize(sql)] + [len(encoded)]
    words = [encoded[start:end].upper().split()[:1] for start, end in pairwise(starts[:3])]
    if not words or words[0] != [b"EXPLAIN"]:
        return "", sql
    if words[1:] == [[b"ANALYZE"]]:
        return "EXPLAIN ANALYZE ", encoded[starts[2] :].decode()
    return "EXPLAIN ", encoded[starts[1] :].decode()


def _suggest(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
