"""Time and memory of answers over 10,000 runs in a store of 100 M GPU samples."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from benchmarks.figures import Figure
from benchmarks.ingest.http import free_port
from gpuagent_collector.metrics import METRICS
from gpuagent_collector.store import Store
from gpuagent_common.address import Address
from tests.support.http import basic, fetch
from tests.support.servers import BIN, Node

NODES = 20
GPUS_A_NODE = 8
RUNS_A_NODE = 500
RUN_SECONDS = 1250
RATE_HZ = 10
# From the first run on: those of the first tenth of the runs.
SAMPLES = 100_000_000

REPEATS = 3

# In seconds, of an answer at this size and of opening a store of 100 GB.
MOST_SECONDS, MOST_OPENING_SECONDS = 2.0, 1.0

# Medians by platform of every metric, by DuckDB without anything else: no interval, no test, no warning, no curve.
_DUCKDB_ALONE = """
import sys, duckdb
with duckdb.connect(sys.argv[1], read_only=True) as connection:
    print(connection.execute(
        "SELECT metric, platform, count(*), median(value) FROM run_metrics JOIN run_requests USING (run_id) "
        "JOIN sessions USING (session_id) GROUP BY ALL ORDER BY ALL").fetchall())
"""


def measure(_node: Node | None = None) -> Iterator[Figure]:
    """Yield wall time and peak memory of answers, beside plain medians of the same figures by DuckDB alone."""
    with TemporaryDirectory(prefix="gpuagent-bench-compare-") as folder, Node(Path(folder)) as node:
        store = node.store
        fill(str(store), SAMPLES)
        size = f"{NODES * RUNS_A_NODE:,} runs, {SAMPLES / 1e6:.0f} M GPU samples, {store.stat().st_size / 1e9:.1f} GB"
        alone = [sys.executable, "-c", _DUCKDB_ALONE, str(store)]
        yield from _timed("medians by DuckDB alone", alone, f"{size}; start included, highest memory")
        written = ("report", str(Path(folder) / "report.html"), "--force")
        for words in (("compare",), ("compare", "--no-series"), ("plan",), ("runs",), ("watch", "--once"), written):
            name = f"`collector {' '.join(words[:1] if words is written else words)}`"
            yield from _timed(name, [str(BIN / "collector"), *words, "--store", str(store)], goal=MOST_SECONDS)
        yield _opening(store)
        yield _page(node)


def _timed(name: str, command: list[str], note: str = "", goal: float | None = None) -> Iterator[Figure]:
    taken = [timed(command) for _ in range(REPEATS)]
    yield Figure(name=name, unit="s", values=[each for each, _ in taken], note=note, goal=goal)
    yield Figure(name=f"{name}: memory", unit="MiB RSS", values=[each for _, each in taken])


def _opening(store: Path) -> Figure:
    """Return the time until a collector has opened the store; without a goal, which is of 100 GB."""
    values = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        Store.open(str(store), create=False).close()
        values.append(time.perf_counter() - started)
    note = f"{store.stat().st_size / 1e9:.1f} GB, page cache warm; the goal, {MOST_OPENING_SECONDS:g} s, is of 100 GB"
    return Figure(name="opening the store", unit="s", values=values, note=note)


def _page(node: Node) -> Figure:
    """Return the time of the web page with all runs, of a collector that changes nothing meanwhile."""
    address = Address(host="127.0.0.1", port=free_port())
    never = [f"--{name}=never" for name in ("keep", "keep-raw", "keep-seconds")]
    node.serve(options=[f"--http={address}", *never])
    password = basic((node.folder / "token").read_text().strip())
    values = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        answer = fetch(address, "/", password)
        values.append(time.perf_counter() - started)
        assert answer.status == HTTPStatus.OK, answer.status
    return Figure(name="web page `/`", unit="s", values=values, goal=MOST_SECONDS, note="whole page, no cache")


# In a small process of its own, since a child's peak memory is at least that of the process that starts it.
_TIMED = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def timed(command: list[str]) -> tuple[float, float]:
    """Return the seconds of a command and its peak memory in MiB."""
    # As installed: without bytecode each start would compile a hundred modules.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    timed_command = [sys.executable, "-c", _TIMED, *command]
    done = subprocess.run(timed_command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    seconds, mebibytes = map(float, done.stdout.split())
    return seconds, mebibytes


def fill(store: str, samples: int) -> None:
    """Put the runs into a store, and samples of their GPUs from the first run on."""
    with Store.open(store) as opened, opened.connect() as connection:
        for statement in _STATEMENTS:
            connection.execute(statement)
        _add_metrics(connection)
        connection.execute(_SAMPLES, [samples])


def _add_metrics(connection: duckdb.DuckDBPyConnection) -> None:
    """Give each run a value of every metric, 1 % apart from run to run and 3 % between the platforms."""
    names = ", ".join(f"('{metric.name}', '{metric.unit}')" for metric in METRICS)
    connection.execute(_METRICS.format(names=names))


# Each node has runs one after the other; the first half of the nodes is one platform, the second another.
_RUNS = f"""
(SELECT node, run, 'run-' || (10000 + node * {RUNS_A_NODE} + run) AS run_id,
        TIMESTAMP '2026-01-01' + to_seconds(run * {RUN_SECONDS}) AS start
 FROM range({NODES}) AS nodes(node), range({RUNS_A_NODE}) AS runs(run))"""

_STATEMENTS = (
    f"""
    INSERT INTO sessions BY NAME
    SELECT node AS session_id, node AS node_id, 'node-' || node AS hostname, 'platform-' || node % 2 AS platform,
           TIMESTAMP '2025-12-31' AS started_at, '{{}}' AS labels, 'Xeon' AS cpu_model, 64 AS cpu_threads,
           {GPUS_A_NODE} AS gpu_count, 512000000000 AS memory_total_bytes, 'none' AS container
    FROM range({NODES}) AS nodes(node)""",
    f"""
    INSERT INTO session_devices BY NAME
    SELECT node AS session_id, node AS node_id, TIMESTAMP '2025-12-31' AS time, node * {GPUS_A_NODE} + gpu AS device_id,
           gpu AS device_index, 'NVIDIA H200' AS name, 150000000000 AS memory_total_bytes
    FROM range({NODES}) AS nodes(node), range({GPUS_A_NODE}) AS gpus(gpu)""",
    f"""
    INSERT INTO run_requests BY NAME
    SELECT node AS session_id, node AS node_id, start AS time, run_id, 'bench' AS experiment, 'resnet50' AS workload,
           '{{"batch-size": 64}}' AS parameters, 'bare' AS environment, 'none' AS interference, run + 1 AS repeat,
           '{{}}' AS labels
    FROM {_RUNS}""",
    f"""
    INSERT INTO run_states BY NAME
    SELECT node AS session_id, node AS node_id, run_id, state.status, start + to_seconds(state.after) AS time,
           if(state.status = 'succeeded', 0, NULL) AS exit_code
    FROM {_RUNS}, (
        SELECT unnest([{{'status': 'queued', 'after': 0}}, {{'status': 'running', 'after': 1}},
                       {{'status': 'succeeded', 'after': {RUN_SECONDS - 1}}}]) AS state)""",
    f"""
    INSERT INTO run_devices BY NAME
    SELECT node AS session_id, node AS node_id, start AS time, run_id, gpu AS rank,
           node * {GPUS_A_NODE} + gpu AS device_id, 'workload' AS found_by
    FROM {_RUNS}, range({GPUS_A_NODE}) AS gpus(gpu)""",
    f"""
    INSERT INTO run_events BY NAME
    SELECT node AS session_id, node AS node_id, run_id, gpu AS rank, 'phase' AS event, phase.name,
           start + to_seconds(phase.after) AS time
    FROM {_RUNS}, range({GPUS_A_NODE}) AS gpus(gpu), (
        SELECT unnest([{{'name': 'setup', 'after': 1}}, {{'name': 'measure', 'after': 20}},
                       {{'name': 'teardown', 'after': {RUN_SECONDS - 5}}}]) AS phase)""",
    f"""
    INSERT INTO results BY NAME
    SELECT node AS session_id, node AS node_id, start + to_seconds({RUN_SECONDS - 2}) AS time, run_id, gpu AS rank,
           'measure' AS phase, told.name, told.text AS value_text, 100 + random() AS value
    FROM {_RUNS}, range({GPUS_A_NODE}) AS gpus(gpu), (
        SELECT unnest([{{'name': 'torch_version', 'text': '2.13.0'}}, {{'name': 'precision', 'text': 'bf16'}},
                       {{'name': 'throughput', 'text': NULL}}, {{'name': 'loss', 'text': NULL}}]) AS told)""",
)

_METRICS = f"""
INSERT INTO run_metrics BY NAME
SELECT run_id, start AS computed_at, metric, unit, 1000 AS samples, value,
       value AS mean_value, value AS median_value, value AS p95_value, value AS max_value
FROM (
    SELECT *, 100 * (1 + node % 2 * 0.03) * (1 + 0.01 * random()) AS value
    FROM {_RUNS}, (VALUES {{names}}) AS metrics(metric, unit)
)"""

# In the order of time, as samples of many agents arrive.
_SAMPLES = f"""
INSERT INTO gpu_samples BY NAME
SELECT device // {GPUS_A_NODE} AS session_id, device // {GPUS_A_NODE} AS node_id, device AS device_id,
       TIMESTAMP '2026-01-01' + to_milliseconds(tick * {1000 // RATE_HZ}) AS time,
       90 + hash(tick, device) % 11 AS utilization_percent, 40 + hash(device, tick) % 7 AS memory_utilization_percent,
       120000000000 + hash(tick) % 64 * 1048576 AS memory_used_bytes, 150000000000 AS memory_total_bytes,
       400 + hash(tick, device, 1) % 3000 / 10 AS power_watts, 60 + tick // 600 % 5 AS temperature_celsius,
       1980 AS sm_clock_mhz, 0 AS throttle_reasons, hash(tick, device, 2) % 1000 / 10 AS sm_active_percent
FROM (
    SELECT row // {NODES * GPUS_A_NODE} AS tick, row % {NODES * GPUS_A_NODE} AS device
    FROM range(?) AS rows(row)
)
"""


if __name__ == "__main__":
    for figure in measure():
        sys.stdout.write(figure.row() + "\n")
