from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.agent_cost import lateness_ms
from benchmarks.collector_process import Commits
from benchmarks.column_bytes import column_bytes
from benchmarks.fleet.model import COLLECTOR_CORES, fit, predict
from benchmarks.fleet.simulate import Observed
from benchmarks.gpu_series import COLUMNS, FAST, GPM, INTEGERS, ROWS_A_SECOND, VALUES_A_SECOND, node_rows, records
from gpuagent_collector.ingest.decode import Decoder, join

EPOCH_MS = 1_795_312_800_000.0


def test_a_tick_that_is_late_by_most_of_a_period_does_not_make_the_others_late() -> None:
    punctual = [EPOCH_MS + 20.0 * tick + 0.25 * (tick % 2) for tick in range(50)]
    after_a_slow_reading = [*punctual[:10], EPOCH_MS + 213.25, *punctual[11:]]
    assert lateness_ms(after_a_slow_reading, 20.0) == pytest.approx([0.0] * 24 + [0.25] * 25 + [13.25])


def test_random_numbers_take_most_of_a_file_and_constants_next_to_nothing(tmp_path: Path) -> None:
    file = tmp_path / "some.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE t AS SELECT random() AS noise, 7 AS same FROM range(500000)")
    with duckdb.connect(str(file), read_only=True) as connection:
        columns = column_bytes(connection, "t")
    assert 3_000_000 < columns["noise"].size_bytes <= file.stat().st_size
    assert columns["same"].size_bytes < 10_000


INFINITE = float("inf")


def observed(nodes: int, cpu: float) -> Observed:
    return Observed(
        nodes=nodes,
        sampled_seconds=40,
        seconds=42.0,
        wire_bytes=nodes * 40 * 32_000,
        cpu_seconds=cpu * 42,
        commits=5,
        commit_seconds=1.0,
        files=15,
        catalog_rows=5 * (100 + nodes),
        stored_bytes=nodes * 40 * 3000,
        rss_mib=250.0,
    )


@given(idle=st.floats(0, 0.2), a_node=st.floats(0.0005, 0.01), few=st.integers(1, 50), more=st.integers(1, 500))
def test_costs_that_two_observations_gave_foretell_both(idle: float, a_node: float, few: int, more: int) -> None:
    seen = [observed(nodes, idle + a_node * nodes) for nodes in (few, few + more)]
    cost = fit(*seen, commits_a_second=10, scanned_rows=1e6)
    for each in seen:
        fleet = predict(cost, each.nodes, 1)
        assert fleet.cpu == pytest.approx(each.cpu_seconds / each.seconds)
        assert fleet.wire_bytes == pytest.approx(each.wire_bytes / 40)
        assert fleet.stored_bytes == pytest.approx(each.stored_bytes / 40)


@given(nodes=st.integers(1, 1_000_000))
def test_no_collector_of_a_fleet_takes_more_than_it_is_given(nodes: int) -> None:
    cost = fit(observed(25, 0.08), observed(100, 0.2), commits_a_second=10, scanned_rows=1e6)
    fleet = predict(cost, nodes)
    assert fleet.cpu <= fleet.collectors * COLLECTOR_CORES * (1 + 1e-9)
    assert fleet.commits >= fleet.collectors / 10


def test_the_median_of_commits_lies_within_its_bucket() -> None:
    commits = Commits(upper_seconds=(0.1, 0.5, INFINITE), counts=(1.0, 9.0, 10.0), total_seconds=3.0)
    assert commits.quantile_seconds(0.5) == pytest.approx(0.3)
    assert commits.quantile_seconds(0.99) == 0.5
    assert (commits + commits).count == 20
    assert (commits + commits).quantile_seconds(0.5) == pytest.approx(0.3)


TYPES = {name: "BIGINT" if name in INTEGERS else "DOUBLE" for name in COLUMNS}
STORED = {"gpu_samples": {"time": "TIMESTAMP", "device_id": "BIGINT", "power_kind": "VARCHAR", **TYPES}}


@given(node=st.integers(0, 100_000), seconds=st.integers(1, 20), piece=st.integers(1, 25))
def test_a_node_says_the_same_again_however_it_is_cut(node: int, seconds: int, piece: int) -> None:
    rows = node_rows(node, seconds, 10**18)
    assert len(rows) == seconds * ROWS_A_SECOND
    assert rows.count() == seconds * VALUES_A_SECOND
    pieces = list(node_rows(node, seconds, 10**18).messages(piece))
    assert sum(each.count() for each in pieces) == rows.count()
    assert sum(each.total() for each in pieces) == pytest.approx(rows.total())
    assert np.all(np.diff(rows.time_unix_nano) >= 0)


def test_figures_that_move_on_a_gpu_move() -> None:
    columns = node_rows(1, 600, 0).columns
    different = {name: len(np.unique(values[~np.isnan(values)])) for name, values in columns.items()}
    assert different["power_watts"] > 10_000
    assert min(different[name] for name in ("utilization_percent", "temperature_celsius", "sm_clock_mhz")) > 5
    assert different["sm_active_percent"] == 600 * 8


def test_the_collector_reads_the_same_values_from_a_message() -> None:
    rows = node_rows(2, 3, 10**18)
    table = join(Decoder(STORED).decode(records(rows), session_id=1, node_id=2).tables["gpu_samples"])
    assert table.num_rows == len(rows)
    for name in (*FAST, *GPM):
        decoded = table[name].to_numpy(zero_copy_only=False).astype(float)
        np.testing.assert_array_equal(decoded, rows.columns[name])
    assert table["power_kind"].null_count == np.count_nonzero(np.isnan(rows.columns["power_watts"]))
