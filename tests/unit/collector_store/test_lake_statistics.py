"""What a lake believes of its columns never hides rows."""

import duckdb


def test_a_row_is_found_though_its_column_was_empty_in_the_first_file_of_a_transaction(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Large inserts become files of their own; in a lake these are each a file of the same transaction."""
    for batches in (("NULL", "100 + i"), ("i // 2000",)):
        connection.begin()
        for core in batches:
            connection.execute(f"INSERT INTO core_samples BY NAME SELECT {core} AS core FROM range(2000) r(i)")
        connection.commit()
    found = connection.execute("SELECT count(*) FROM core_samples WHERE core >= 100").fetchone()
    assert found == (2000,)
    assert connection.execute("SELECT max(core) FROM core_samples").fetchone() == (2099,)
