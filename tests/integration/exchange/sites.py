"""Stores of sites that exchange results, and what is in them."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from gpuagent_collector.exchange.export import CheckedExport, Manifest, export
from gpuagent_collector.exchange.merge import Merged, merge
from gpuagent_collector.exchange.tables import RunFilter, exchanged_tables, newest_version
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_collector.store.compact import filled_tables
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.commands import adding_to
from tests.support.stores import open_store, put_store

# How often each row is in each table.
Content = Mapping[str, "Counter[tuple[Any, ...]]"]


def content(store_name: str) -> Content:
    with Store.open(store_name, read_only=True) as store, store.connect() as connection:
        tables = exchanged_tables(newest_version())
        # A lake takes 20 ms to read a table without rows, and reads its catalog once for each transaction.
        filled = filled_tables(connection) if store.spec.is_lake else tables.keys()
        connection.begin()
        return {
            name: Counter(connection.execute(f"FROM {name}").fetchall() if name in filled else []) for name in tables
        }


def execute(store_name: str, sql: str) -> list[Any]:
    with open_store(store_name) as store, store.connect() as connection:
        return connection.execute(sql).fetchall()


def union(*contents: Content) -> Content:
    """Return each row as often as that of the contents has it that has it most often."""
    merged: dict[str, Counter[tuple[Any, ...]]] = {}
    for each in contents:
        for name, rows in each.items():
            merged[name] = merged.get(name, Counter()) | rows
    return merged


def write_site(store_name: str, fill: Callable[[SyntheticStore], None]) -> str:
    """Make a store that a function fills, and return its name; to make the same again takes no time."""
    return put_store(store_name, _filling(fill))


@cache
def _filling(fill: Callable[[SyntheticStore], None]) -> Callable[[Store], None]:
    def write(store: Store) -> None:
        with adding_to(store) as synthetic:
            fill(synthetic)

    return write


def export_store(store_name: str, folder: Path, chosen: RunFilter | None = None) -> Manifest:
    with closing(FileReader(StoreSpec.parse(store_name))) as reader:
        return export(reader, folder, chosen, lambda *_: None)


def import_folder(folder: Path, store_name: str) -> list[Merged]:
    checked = CheckedExport.open(folder)
    with open_store(store_name, exact=True) as store:
        return list(merge(checked, store))


def added(merged: list[Merged]) -> int:
    return sum(each.added for each in merged)
