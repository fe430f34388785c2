"""Exports that overlap, merged in any order and any number of times, are the union of what they hold."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.integration.exchange.sites import content, export_store, import_folder, union
from tests.support.stores import open_store

pytestmark = pytest.mark.slow

# Rows by table.
Rows = dict[str, list[dict[str, Any]]]

DOUBLES = st.none() | st.floats(allow_nan=False) | st.sampled_from([0.1 + 0.2, -0.0, 5e-324, 1.9902762890714556])
TIMES = st.none() | st.integers(-(10**15), 4 * 10**15)
TEXTS = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
SAMPLE = st.fixed_dictionaries(
    {
        "session_id": st.none() | st.integers(-2, 2),
        "node_id": st.integers(-(2**63), 2**63 - 1),
        "time": TIMES,
        "core": st.none() | st.integers(0, 3),
        "cpu_percent": DOUBLES,
    }
)
EVENT = st.fixed_dictionaries(
    {
        "session_id": st.integers(1, 2),
        "time": TIMES,
        "run_id": TEXTS,
        "name": TEXTS,
        "detail": st.none() | st.sampled_from(["{}", '{"a":  [1, null]}', '"ü\\ud83d\\ude00"', "1e400"]),
    }
)
ROWS: st.SearchStrategy[Rows] = st.fixed_dictionaries(
    {"core_samples": st.lists(SAMPLE, max_size=8), "run_events": st.lists(EVENT, max_size=6)}
)
TYPES = {"time": pa.timestamp("us"), "cpu_percent": pa.float64()} | dict.fromkeys(
    ("run_id", "name", "detail"), pa.string()
)


def write(store_name: str, rows: Rows) -> None:
    with open_store(store_name, exact=True) as store, store.connect() as connection:
        for table, some in rows.items():
            if some:
                columns = {name: pa.array([row[name] for row in some], TYPES.get(name, pa.int64())) for name in some[0]}
                connection.register("incoming", pa.table(columns))
                connection.execute(f"INSERT INTO {table} BY NAME FROM incoming")
                connection.unregister("incoming")


@st.composite
def overlapping(draw: st.DrawFn) -> tuple[Rows, Rows]:
    common, first, second = draw(ROWS), draw(ROWS), draw(ROWS)
    one, other = ({name: common[name] + own[name] for name in common} for own in (first, second))
    return one, other


SITES = {"sites": overlapping(), "order": st.lists(st.sampled_from([0, 1]), max_size=3)}
# To shrink an example takes minutes, and tells little more.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


@settings(max_examples=5, phases=PHASES)
@given(**SITES)
def test_any_order_of_imports_gives_the_union(sites: Sequence[Rows], order: list[int]) -> None:
    check_union("", sites, order)


@settings(max_examples=2, phases=PHASES)
@given(**SITES)
def test_any_order_of_imports_gives_the_union_in_a_lake(sites: Sequence[Rows], order: list[int]) -> None:
    check_union("ducklake:", sites, order)


def check_union(kind: str, sites: Sequence[Rows], order: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contents = []
        for number, rows in enumerate(sites):
            write(f"{folder}/{number}.duckdb", rows)
            export_store(f"{folder}/{number}.duckdb", folder / f"export-{number}")
            contents.append(content(f"{folder}/{number}.duckdb"))
        for number in [*order, 0, 1]:
            import_folder(folder / f"export-{number}", f"{kind}{folder}/merged")
        assert content(f"{kind}{folder}/merged") == union(*contents)
