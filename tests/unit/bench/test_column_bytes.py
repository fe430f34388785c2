"""Where a file's bytes are said to go."""

from pathlib import Path

import duckdb

from benchmarks.column_bytes import column_bytes


def test_random_numbers_take_most_of_a_file_and_constants_next_to_nothing(tmp_path: Path) -> None:
    file = tmp_path / "some.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE t AS SELECT random() AS noise, 7 AS same FROM range(500000)")
    with duckdb.connect(str(file), read_only=True) as connection:
        columns = column_bytes(connection, "t")
    assert 3_000_000 < columns["noise"].size_bytes <= file.stat().st_size
    assert columns["same"].size_bytes < 10_000
