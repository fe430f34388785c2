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
    b"workload| = |'mnist'| AND | OR |NOT |(|)|--|/*|*/|;|UNION ALL |SELECT | FROM runs|$$|$a$|?|$1|''|\"|E'\\'|"
    b"::VARCHAR| IN | LIKE |CASE WHEN | THEN | END|LIMIT 1|QUALIFY |AS x|true|\n|U&'|ORDER BY |#1|0x"
).split(b"|")


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
