"""Rows of the last seconds, as agents that run now would have sent them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.keys import key

# Samples go on into the future, as far apart as what counts as recent: for ten minutes, a test finds some.
MOMENTS: Sequence[float] = (-1, *range(20, 600, 25))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Writes rows with times relative to when it was made, in seconds, into a store."""

    connection: duckdb.DuckDBPyConnection
    now: datetime = field(default_factory=utc_now)

    def node(self, hostname: str, platform: str = "satori", *, heard_age: float = 1.0, gpus: int = 0) -> int:
        node_id = session_id = key(hostname)
        at = {"session_id": session_id, "node_id": node_id}
        session = {"node_uuid": f"node-{node_id}", "session_uuid": f"session-{node_id}", "hostname": hostname}
        self.add("sessions", -3600, **at, **session, platform=platform, cpu_threads=64)
        moment = self.now - timedelta(seconds=heard_age)
        self.connection.execute("INSERT INTO marks VALUES (?, 1, ?)", [session_id, moment])
        for index in range(gpus):
            device = {"device_id": key(f"{hostname}{index}"), "uuid": f"GPU-{hostname}-{index}", "device_index": index}
            facts = {"name": "NVIDIA H200", "memory_total_bytes": 150_000_000_000, "power_limit_watts": 700.0}
            self.add("session_devices", -3600, **at, **device, **facts)
        return node_id

    def host(self, node_id: int, seconds: float | Sequence[float] = -1.0, **values: Any) -> None:
        self.add("host_samples", seconds, session_id=node_id, node_id=node_id, **values)

    def gpu(
        self, node_id: int, hostname: str, index: int, seconds: float | Sequence[float] = -1.0, **values: Any
    ) -> None:
        device_id = key(f"{hostname}{index}")
        self.add("gpu_samples", seconds, session_id=node_id, node_id=node_id, device_id=device_id, **values)

    def run(self, run_id: str, node_id: int, *states: tuple[float, str], workload: str = "mnist", **more: str) -> None:
        at = {"session_id": node_id, "node_id": node_id, "run_id": run_id}
        known = {"workload": workload, "environment": "bare", "interference": "none", **more}
        self.add("run_requests", states[0][0] - 1, **at, **known)
        for seconds, status in states:
            self.add("run_states", seconds, **at, status=status)

    def add(self, table: str, seconds: float | Sequence[float], **values: Any) -> None:
        """Add a row of a moment, or the same at each of several."""
        column = {"sessions": "started_at", "run_metrics": "computed_at"}.get(table, "time")
        moments = [seconds] if isinstance(seconds, int | float) else seconds
        rows = [{column: self.now + timedelta(seconds=moment), **values} for moment in moments]
        arrow = pa.Table.from_pylist(rows)
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
            memory = {"memory_used_bytes": 95_000_000_000, "memory_total_bytes": 1_145_000_000_000}
            site.host(node_id, MOMENTS, cpu_percent=cpu_percent, **memory)
        figures = {"memory_used_bytes": 110_000_000_000, "power_watts": 650.0, "temperature_celsius": 61.0}
        site.gpu(busy, "alder", 0, MOMENTS, utilization_percent=98.0, sm_active_percent=57.0, **figures)
        site.gpu(busy, "alder", 1, MOMENTS, utilization_percent=0.0, throttle_reasons=0x40, sm_clock_mhz=1980.0)
        site.run("mnist-open", busy, (-60, "running"))
        site.run("gpt-done", hostile, (-90, "running"), (-30, "failed"), workload=HOSTILE)
