"""What benchmarks send is like what GPUs say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu_series import COLUMNS, FAST, GPM, INTEGERS, ROWS_A_SECOND, VALUES_A_SECOND, node_rows, records
from gpuagent_collector.ingest.decode import Decoder

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
    (table,) = Decoder(STORED).decode(records(rows), session_id=1, node_id=2).tables["gpu_samples"]
    assert table.num_rows == len(rows)
    for name in (*FAST, *GPM):
        decoded = table[name].to_numpy(zero_copy_only=False).astype(float)
        np.testing.assert_array_equal(decoded, rows.columns[name])
    assert table["power_kind"].null_count == np.count_nonzero(np.isnan(rows.columns["power_watts"]))
