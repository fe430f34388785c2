"""The limits of one catalog and one core."""

import time
from pathlib import Path
from statistics import median

import duckdb

from benchmarks.collector_process import start_collector
from benchmarks.gpu_series import arrow, node_rows, records
from benchmarks.ingest.sending import encode_all, send_all
from gpuagent_collector.store import Store
from tests.support.postgres import Postgres
from tests.support.servers import Node

_COLLECTORS = 3
_NODES = 6
_SECONDS = 40
_SCANNED_NODES = 8
_SCANNED_SECONDS = 10_000
_REPEATS = 5

_MEANS = """
SELECT device_id, time_bucket(INTERVAL 1 MINUTE, time) AS minute, avg(power_watts), max(temperature_celsius)
FROM gpu_samples GROUP BY ALL
"""


def commits_at_most(folder: Path, server: Postgres) -> float:
    """Return the commits per second of three collectors that commit a few rows each."""
    lake = f"ducklake:postgres:{server.database()}"
    nodes = [node_rows(node, _SECONDS, time.time_ns()) for node in range(_NODES)]
    files = encode_all(folder, "small", records, nodes, 1)
    options = ("--store", lake, "--data", str(folder / "files"), "--commit-interval", "0")
    with Node(folder) as node:
        running = [start_collector(node, *options, log=f"collector{number}.log") for number in range(_COLLECTORS)]
        before = sum(each.commits().count for each in running)
        seconds = send_all({file: running[place % _COLLECTORS].stream(place) for place, file in enumerate(files)})
        return (sum(each.commits().count for each in running) - before) / seconds


def rows_scanned(folder: Path) -> float:
    """Return the rows a second of which one core makes a mean of each GPU and minute, of a file."""
    with Store.open(str(folder / "scanned.duckdb")) as store, store.connect() as connection:
        for node in range(_SCANNED_NODES):
            connection.register("incoming", arrow(node_rows(node, _SCANNED_SECONDS, 0)))
            connection.execute("INSERT INTO gpu_samples BY NAME SELECT * FROM incoming")
    with duckdb.connect(str(folder / "scanned.duckdb"), read_only=True, config={"threads": 1}) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM gpu_samples").fetchone() or (0,)
        return float(rows) / median(_scan_seconds(connection) for _ in range(_REPEATS))


def _scan_seconds(connection: duckdb.DuckDBPyConnection) -> float:
    start = time.perf_counter()
    connection.execute(_MEANS).fetchall()
    return time.perf_counter() - start
