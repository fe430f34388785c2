"""Values in SQL."""

import duckdb
import pytest

from gpuagent_collector.query.ask import list_text


@pytest.mark.parametrize(
    "texts", [[], [""], ["run-1", "run-2"], ["a, b", "[c]", "NULL", "'"], ['"', "\\n", "d\n", 'e\\"'], ["ü", "f"]]
)
def test_a_list_as_a_text_is_the_same_list_to_duckdb(texts: list[str]) -> None:
    with duckdb.connect() as connection:
        assert connection.execute("SELECT CAST(? AS VARCHAR[])", [list_text(texts)]).fetchone() == (texts,)
