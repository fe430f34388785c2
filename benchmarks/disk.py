"""Bytes on disk of recorded GPU samples, replayed with noise: in a file and in a lake, unsorted, sorted, and thinned
out. Run it with `python -m benchmarks.disk`; sizes do not depend on the machine."""

import json
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpuagent_collector.store import Store
from gpuagent_collector.store.compact import lay_out
from gpuagent_collector.store.instance import LAKE
from gpuagent_collector.store.retention import Retention
from tests.support.nvml_replay import FOLDER

NODES, GPUS, SECONDS, HERTZ = 4, 8, 3600, 10
_HOUR, _LATER = timedelta(hours=1), datetime.fromisoformat("2030-01-01")
_START_MICROS = 1_770_000_000_000_000
_RECORDED = json.loads((FOLDER / "h200_busy.json").read_text())
# Column → GPM's number.
_COUNTERS = {
    "sm_active_percent": "2",
    "sm_occupancy_percent": "3",
    "integer_active_percent": "4",
    "tensor_active_percent": "5",
    "tensor_fp64_active_percent": "6",
    "tensor_half_active_percent": "7",
    "tensor_integer_active_percent": "9",
    "dram_active_percent": "10",
    "fp64_active_percent": "11",
    "fp32_active_percent": "12",
    "fp16_active_percent": "13",
    "pcie_send_bytes_per_second": "20",
    "pcie_receive_bytes_per_second": "21",
    "nvlink_send_bytes_per_second": "60",
    "nvlink_receive_bytes_per_second": "61",
}

ORDERS = {
    "a message of a second, ticks in turn": "second, node_id, time, device_id",
    "a message of a second, GPUs in turn": "second, node_id, device_id, time",
    "sorted by node, GPU, time": "node_id, device_id, time",
}


def _recorded(call: str) -> list[Any]:
    return next([each["answer"] for each in said if each["answer"]] for name, said in _RECORDED.items() if call in name)


def gpu_samples(chance: np.random.Generator) -> pa.Table:
    """Return an hour of some nodes: each GPU works and rests in stretches of ten minutes, as one was recorded to."""
    shape = (NODES, SECONDS * HERTZ, GPUS)
    tick = np.arange(shape[1]).reshape(1, -1, 1)
    busy = np.repeat(chance.random((NODES, shape[1] // 6000, GPUS)) < 0.7, 6000, axis=1)
    rates = np.array([(each["gpu"], each["memory"]) for each in _recorded("UtilizationRates")])
    rate = rates[np.repeat(chance.integers(0, len(rates), (NODES, shape[1] // 2, GPUS)), 2, axis=1)]
    drawn = np.array(_recorded("FieldValues"))[chance.integers(0, 30, shape)] / 1000 + chance.normal(0, 9, shape)
    watts = np.round(np.where(busy, drawn, 76 + chance.normal(0, 0.15, shape)), 3)
    clock = np.where(busy, 1980 - 15 * (chance.random(shape) < 0.05) * chance.integers(1, 8, shape), 345)
    drift = np.cumsum(chance.choice([-1, 0, 1], (NODES, SECONDS // 10, GPUS), p=[0.1, 0.8, 0.1]), axis=1) % 6
    micros = _START_MICROS + tick * 10**6 // HERTZ + chance.integers(40, 160, (NODES, shape[1], 1))
    every_second, every_tenth = tick % HERTZ > 0, tick % (10 * HERTZ) > 0
    columns = {
        "session_id": _column(chance.integers(-(2**63), 2**63 - 1, (NODES, 1, 1)), shape),
        "node_id": _column(chance.integers(-(2**63), 2**63 - 1, (NODES, 1, 1)), shape),
        "time": _column(micros, shape).cast(pa.timestamp("us")),
        "second": _column(tick // HERTZ, shape),
        "device_id": _column(chance.integers(-(2**63), 2**63 - 1, (NODES, 1, GPUS)), shape),
        "utilization_percent": _column(rate[..., 0] * busy * 1.0, shape),
        "memory_utilization_percent": _column(rate[..., 1] * busy * 1.0, shape),
        "memory_used_bytes": _column(959_250_432 + busy * 1_214_251_008, shape),
        "memory_reserved_bytes": _column(np.array(644_939_776), shape),
        "memory_total_bytes": _column(np.array(150_754_820_096), shape),
        "power_watts": _column(watts, shape),
        "power_kind": pa.array(["instant"] * (NODES * SECONDS * HERTZ * GPUS)),
        "temperature_celsius": _column(35.0 + 14 * busy + np.repeat(drift, 10 * HERTZ, axis=1), shape),
        "sm_clock_mhz": _column(clock * 1.0, shape),
        "memory_clock_mhz": _column(np.array(3201.0), shape),
        "throttle_reasons": _column(np.where(busy, 4 * (clock < 1980), 1), shape),
        "ecc_errors_uncorrected": _column(np.array(0), shape),
        "process_count": _column(busy * 1, shape, absent=every_second),
        "energy_joules": _column(np.round(np.cumsum(watts / HERTZ, axis=1), 3), shape, absent=every_tenth),
    }
    readings = [each for each in _recorded("gpm(") if each]
    for name, number in _COUNTERS.items():
        level = float(np.mean([each[number] for each in readings]))
        noisy = level * np.clip(chance.normal(1, 0.12, shape), 0, 2) * busy
        columns[name] = _column(noisy, shape, absent=every_second)
    return pa.table(columns)


def _column(
    values: NDArray[Any], shape: tuple[int, ...], *, absent: NDArray[np.bool_] | None = None
) -> "pa.Array[Any]":
    mask = None if absent is None else np.broadcast_to(absent, shape).ravel()
    column: pa.Array[Any] = pa.array(np.broadcast_to(values, shape).ravel(), mask=mask)
    return column


def measure(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield how rows are kept, their bytes on disk, and how many readings they came from."""
    samples = gpu_samples(np.random.default_rng(7))
    readings = sum(len(column) - column.null_count for column in samples.columns[5:])
    for number, (words, order) in enumerate(ORDERS.items()):
        path = folder / f"{number}.duckdb"
        with Store.open(str(path)) as store, store.connect() as connection:
            empty_bytes = path.stat().st_size
            connection.register("samples", samples)
            connection.execute(f"INSERT INTO gpu_samples BY NAME SELECT * EXCLUDE second FROM samples ORDER BY {order}")
            connection.execute("CHECKPOINT")
            yield f"file, {words}", _used_bytes(connection) - empty_bytes, readings
    for compression in ("snappy", "zstd"):
        yield f"lake, compacted; {compression}", _lake_bytes(folder / compression, samples, compression), readings
    yield "file, thinned out to one row a second", _thinned_bytes(folder, Retention(samples=_HOUR)), readings
    yield "file, thinned out to one row a minute", _thinned_bytes(folder, Retention(seconds=_HOUR)), readings


def _lake_bytes(folder: Path, samples: pa.Table, compression: str) -> int:
    """Return what a lake's files take, laid out as one in PostgreSQL, that was committed by the minute and tidied."""
    folder.mkdir()
    with Store.open(f"ducklake:{folder}/lake") as store, store.connect() as connection:
        lay_out(connection, frozenset())
        connection.execute(f"CALL {LAKE}.set_option('parquet_compression', '{compression}')")
        connection.register("samples", samples)
        for minute in range(SECONDS // 60):
            rows = f"SELECT * EXCLUDE second FROM samples WHERE second // 60 = {minute}"
            connection.execute(f"INSERT INTO gpu_samples BY NAME {rows}")
        store.tidy()
        kept = store.files()
        assert kept is not None
        return kept.size_bytes


def _thinned_bytes(folder: Path, kept: Retention) -> int:
    """Return what the rows of the last file take when they are thinned out, in a file of their own."""
    thinned, alone = folder / f"{len(ORDERS) - 1}.duckdb", folder / f"rolled-{kept.seconds}.duckdb"
    with Store.open(str(thinned)) as store:
        assert list(store.retain(kept, _LATER))
    with duckdb.connect(str(alone)) as connection:
        connection.execute(f"ATTACH '{thinned}' AS thinned (READ_ONLY)")
        connection.execute("CREATE TABLE rollups AS FROM thinned.gpu_rollups")
        connection.execute("CHECKPOINT")
        return _used_bytes(connection)


def _used_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    ((used,),) = connection.execute(
        "SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = current_database()"
    ).fetchall()
    return int(used)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for words, size_bytes, readings in measure(Path(temporary)):
            row_count = NODES * GPUS * SECONDS * HERTZ
            print(f"| {words} | {size_bytes / row_count:.1f} | {size_bytes / readings:.2f} |", flush=True)
