"""Rows of the last seconds, as agents that run now would have sent them."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa

from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.keys import key

# Samples go on into the future, within what counts as recent, so that a slow test still finds some.
AHEAD_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Writes rows with times relative to now, in seconds, into a store."""

    connection: duckdb.DuckDBPyConnection

    def node(self, hostname: str, platform: str = "satori", *, heard_age: float = 1.0, gpus: int = 0) -> int:
        node_id = session_id = key(hostname)
        at = {"session_id": session_id, "node_id": node_id}
        session = {"node_uuid": f"node-{node_id}", "session_uuid": f"session-{node_id}", "hostname": hostname}
        self.add("sessions", -3600, **at, **session, platform=platform, cpu_threads=64)
        moment = utc_now() - timedelta(seconds=heard_age)
        self.connection.execute("INSERT INTO marks VALUES (?, 1, ?)", [session_id, moment])
        for index in range(gpus):
            device = {"device_id": key(f"{hostname}{index}"), "uuid": f"GPU-{hostname}-{index}", "device_index": index}
            facts = {"name": "NVIDIA H200", "memory_total_bytes": 150_000_000_000, "power_limit_watts": 700.0}
            self.add("session_devices", -3600, **at, **device, **facts)
        return node_id

    def host(self, node_id: int, seconds: float = -1.0, **values: Any) -> None:
        self.add("host_samples", seconds, session_id=node_id, node_id=node_id, **values)

    def gpu(self, node_id: int, hostname: str, index: int, seconds: float = -1.0, **values: Any) -> None:
        device_id = key(f"{hostname}{index}")
        self.add("gpu_samples", seconds, session_id=node_id, node_id=node_id, device_id=device_id, **values)

    def run(self, run_id: str, node_id: int, *states: tuple[float, str], workload: str = "mnist") -> None:
        at = {"session_id": node_id, "node_id": node_id, "run_id": run_id}
        self.add("run_requests", states[0][0] - 1, **at, workload=workload, environment="bare", interference="none")
        for seconds, status in states:
            self.add("run_states", seconds, **at, status=status)

    def add(self, table: str, seconds: float, **values: Any) -> None:
        times = {"sessions": "started_at", "run_metrics": "computed_at"}
        row = {times.get(table, "time"): utc_now() + timedelta(seconds=seconds), **values}
        arrow = pa.table({name: [value] for name, value in row.items()})
        self.connection.register("arriving", arrow)
        self.connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM arriving")
        self.connection.unregister("arriving")


# A hostname that would act on a terminal, break out of a label, and run in a browser.
HOSTILE = 'evil\x1b[31m\x9b2J\u202e[red]"}\n<script>alert(1)</script>'


def fill(store: Store) -> None:
    """Put in a busy node with two GPUs, one of which is held back, a silent one, a hostile one, and two runs."""
    with store.connect() as connection:
        site = Site(connection=connection)
        busy = site.node("alder", gpus=2)
        hostile = site.node(HOSTILE, "openshift")
        site.node("birch", "openshift", heard_age=300)
        for node_id, cpu_percent in ((busy, 25.0), (hostile, 50.0)):
            for seconds in (-1, AHEAD_SECONDS):
                memory = {"memory_used_bytes": 95_000_000_000, "memory_total_bytes": 1_145_000_000_000}
                site.host(node_id, seconds, cpu_percent=cpu_percent, **memory)
        for seconds in (-1, AHEAD_SECONDS):
            figures = {"memory_used_bytes": 110_000_000_000, "power_watts": 650.0, "temperature_celsius": 61.0}
            site.gpu(busy, "alder", 0, seconds, utilization_percent=98.0, sm_active_percent=57.0, **figures)
            site.gpu(busy, "alder", 1, seconds, utilization_percent=0.0, throttle_reasons=0x40, sm_clock_mhz=1980.0)
        site.run("mnist-open", busy, (-60, "running"))
        site.run("gpt-done", hostile, (-90, "running"), (-30, "failed"), workload=HOSTILE)
