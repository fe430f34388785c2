"""The functions that a query may call. Any other is rejected, so functions that DuckDB adds later are too."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
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
    sizes = map(constant, arguments[_SIZES.get(name, slice(0))])
    if not all(isinstance(size, int) and abs(size) <= LARGEST_SIZE for size in sizes):
        instead = f", or FROM {name}(…)" if name in TABLE_FUNCTIONS else ""
        raise MisuseError(f"{name} takes sizes up to {LARGEST_SIZE:,} here, written as numbers{instead}")
    if name in {"format", "printf"} and arguments:
        text = constant(arguments[0])
        if not isinstance(text, str) or _WIDE.search(text):
            raise MisuseError(f"{name} takes a constant text here, with widths of at most three digits")
