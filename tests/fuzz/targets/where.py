"""Conditions of users (`--where`): whatever is let through can only choose among rows, never add any.

Put behind `false AND`, a condition between its parentheses leaves no row. One that could end them would.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import duckdb

from gpuagent_collector.query.condition import parenthesised
from gpuagent_collector.query.guard import Guard
from gpuagent_common.errors import MisuseError
from tests.fuzz.bounded import Bounded
from tests.fuzz.tally import Attempt

TOKENS = (
    *(
        b"workload",
        b" = ",
        b"'mnist'",
        b" AND ",
        b" OR ",
        b"NOT ",
        b"(",
        b")",
        b"--",
        b"/*",
        b"*/",
        b";",
        b"UNION ALL ",
    ),
    *(b"SELECT ", b" FROM runs", b"$$", b"$a$", b"?", b"$1", b"''", b'"', b"E'\\'", b"::VARCHAR", b" IN ", b" LIKE "),
    *(
        b"CASE WHEN ",
        b" THEN ",
        b" END",
        b"LIMIT 1",
        b"QUALIFY ",
        b"AS x",
        b"true",
        b"\n",
        b"U&'",
        b"ORDER BY ",
        b"#1",
        b"0x",
    ),
)


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Choose among the rows of a small table."""
    with closing(duckdb.connect(config={"enable_external_access": "false", "memory_limit": "500MB"})) as connection:
        connection.execute("CREATE TABLE runs AS SELECT 'mnist' AS workload, 3 AS repeat FROM range(3)")
        guard = Guard(["runs"])
        with Bounded(connection, seconds=1.0).watched() as bounded:

            def attempt(data: bytes) -> None:
                with suppress(MisuseError, duckdb.Error):
                    condition = parenthesised(data.decode(errors="replace"))
                    rows = bounded.first_rows(
                        guard.check(f"SELECT count(*) AS n FROM runs WHERE false AND {condition}")
                    )
                    assert rows is not None and rows.to_pylist() == [{"n": 0}], rows

            yield attempt
