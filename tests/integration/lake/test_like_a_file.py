"""A store in PostgreSQL says what a file says that holds the same. What is its alone is tried beside this."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from gpuagent_collector.query.guard import store_relations
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_collector.store.transactions import transaction
from tests.integration.compare.synthetic import quiet_and_burning
from tests.support.commands import adding_to

pytestmark = [pytest.mark.slow, pytest.mark.needs("psql")]

# Which is each store's own.
BOOKKEEPING = {"schema_migrations", "commits", "session_owners"}

# Values that are not easily written into another database, by table and column.
EXTREMES: dict[tuple[str, str], list[Any]] = {
    ("core_samples", "time"): ["1677-09-21 00:12:43", "2026-01-01 00:00:00.123456", "infinity", "0044-03-15 (BC)"],
    ("core_samples", "core"): [-(2**63), 2**63 - 1, 0, None],
    ("core_samples", "cpu_percent"): [math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, -0.0, 1 / 3],
    ("sessions", "platform"): [
        "",
        "a'b\\c\"d",
        "\x00nul\x00",
        "é😀\u202e",
        "E'\\x'",
        "NULL",
        "\r\n\t\x1b[31m",
        "x" * 9000,
    ],
    ("sessions", "labels"): ["null", '"x"', '{"a": "\\u0000"}', '{"k":  [1, 2.5, "é"]}'],
}

Stores = tuple[Store, Store]


def fill(store: Store) -> None:
    with adding_to(store) as synthetic:
        quiet_and_burning(synthetic, gpus=["NVIDIA L4"])
    with closing(store.connect()) as connection, transaction(connection):
        for (table, column), values in EXTREMES.items():
            for number, value in enumerate(values):
                connection.execute(f"INSERT INTO {table} (session_id, {column}) VALUES (?, ?)", [number, value])


@pytest.fixture(scope="module")
def stores(lake: StoreSpec, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    specs = (StoreSpec.parse(str(tmp_path_factory.mktemp("file") / "runs.duckdb")), lake)
    with ExitStack() as opened:
        file, shared = (opened.enter_context(Store.open(spec)) for spec in specs)
        for store in (file, shared):
            fill(store)
        yield file, shared


def everything(store: Store) -> dict[str, "Counter[str]"]:
    with closing(store.connect()) as connection:
        return {
            name: Counter(str([*map(written, row)]) for row in connection.execute(f"FROM {name}").fetchall())
            for name in sorted(store_relations(connection) - BOOKKEEPING)
        }


def written(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def test_every_table_and_view_reads_as_in_a_file_before_and_after_compaction(stores: Stores) -> None:
    file, shared = stores
    expected = everything(file)
    assert everything(shared) == expected
    shared.tidy()
    assert everything(shared) == expected
