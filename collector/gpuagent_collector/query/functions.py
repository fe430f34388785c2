"""Which functions a query may call. What is not found here is refused, so that what DuckDB adds later is too."""

import duckdb

TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})
"""Table functions that make rows of their arguments alone. All others read files, other catalogs or settings, run SQL
from a string (`query`, `query_table`, `json_execute_serialized_sql`) or write (`checkpoint`, `enable_logging`)."""

_VOLATILE = frozenset({"error", "gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})
"""The only functions whose result changes from row to row that are let in: they touch nothing. The others advance
sequences (`nextval`), write (`write_log`), wait (`sleep_ms`) or set the seed of later queries (`setseed`)."""

_IMPURE = frozenset(
    {
        "current_setting",  # settings can hold paths and credentials
        "get_block_size",  # reads the list of attached databases
        "getenv",  # part of DuckDB's own shell, not of the library; named so that it stays out
        "getvariable",  # what another query left on the connection
        "json_serialize_plan",  # plans SQL from a string, which opens the files it names
    }
)
"""Functions that DuckDB calls pure and that still look outside their arguments."""

_MADE_BY_PARSER = frozenset({"unnest"})
"""Not listed as a scalar function, but allowed in a SELECT list."""

_PURE_QUERY = """
    SELECT DISTINCT lower(function_name)
    FROM duckdb_functions()
    WHERE schema_name = 'main' AND internal
      AND (function_type = 'macro' OR (function_type IN ('scalar', 'aggregate') AND stability <> 'VOLATILE'))
"""
"""`pg_catalog` is left out: its macros look at catalogs, and one sleeps."""


def scalar_functions(bare: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the names of scalar, aggregate and window functions that depend on their arguments and the time alone.

    `bare` is a connection to an empty database without extensions, so that no function of an extension gets in.
    """
    pure = {name for (name,) in bare.execute(_PURE_QUERY).fetchall()}
    return frozenset((pure | _VOLATILE | _MADE_BY_PARSER) - _IMPURE)
