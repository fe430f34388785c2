import pytest

from gpuagent_collector.query.guard import store_relations
from gpuagent_collector.schema.describe import TableDoc, describe_store
from gpuagent_collector.store import Store
from gpuagent_common.quantities import QUANTITIES
from tests.support.stores import on_both_kinds

TABLES = describe_store()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_and_column_says_what_it_is_and_where_it_comes_from(table: TableDoc) -> None:
    assert table.definition
    assert table.columns
    for column in table.columns:
        assert column.definition, f"{column.table}.{column.column} has no definition"
        assert column.source, f"{column.table}.{column.column} has no source"


@pytest.mark.parametrize("suffix", ["bytes", "percent", "seconds", "watts", "mhz", "celsius", "hz", "joules", "cores"])
def test_a_column_with_a_unit_in_its_name_has_it_in_its_description_too(suffix: str) -> None:
    for table in TABLES:
        for column in table.columns:
            counted = column.column in ("cpu_cores", "cuda_cores") and column.type == "BIGINT"
            if column.column.endswith(f"_{suffix}") and not counted:
                assert column.unit, f"{column.table}.{column.column} has no unit"


@pytest.mark.parametrize("samples", QUANTITIES)
def test_every_quantity_is_a_column_of_its_table_and_is_thinned_out_as_its_curve_needs(samples: str) -> None:
    tables = {table.name: {column.column: column.type for column in table.columns} for table in TABLES}
    columns, rollups = tables[samples], tables[samples.replace("_samples", "_rollups")]
    names = [quantity.column for quantity in QUANTITIES[samples]]
    assert len(set(names)) == len(names)
    for quantity in QUANTITIES[samples]:
        assert {quantity.column, quantity.part_of or quantity.column} <= columns.keys() & rollups.keys()
        assert not quantity.has_curve or rollups[quantity.column] == "STRUCT"
        assert bool(quantity.title) == bool(quantity.figure)


@on_both_kinds("store")
def test_what_is_described_is_what_a_store_has(store: Store) -> None:
    with store.connect() as connection:
        in_store = store_relations(connection) - {"schema_migrations"}
        for table in TABLES:
            described = [(column.column, column.type) for column in table.columns]
            held = connection.execute(f"DESCRIBE {table.name}").fetchall()
            assert described == [(name, kind.partition("(")[0]) for name, kind, *_ in held]
    assert {table.name for table in TABLES} == in_store
