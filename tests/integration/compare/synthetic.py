"""Stores filled with made-up runs, so that tests know what a comparison must find in them."""

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.query.execute import Parameter

EPOCH = datetime(2030, 1, 1, 12)  # noqa: DTZ001 - as the store holds times
COMPUTED_AT = EPOCH + timedelta(days=1)

SETUP_SECONDS, WARMUP_SECONDS, MEASURE_SECONDS, TEARDOWN_SECONDS = 2, 1, 12, 1
BEFORE_MEASURE = SETUP_SECONDS + WARMUP_SECONDS
RUN_SECONDS = SETUP_SECONDS + WARMUP_SECONDS + MEASURE_SECONDS + TEARDOWN_SECONDS

# Second at which each phase begins.
PHASES = {"setup": 0, "warmup": SETUP_SECONDS, "measure": BEFORE_MEASURE, "teardown": RUN_SECONDS - TEARDOWN_SECONDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One agent process on one node, and its GPUs' keys."""

    session_id: int
    node_id: int
    gpus: tuple[int, ...]

    def at(self, second: float, gpu: int | None = None) -> dict[str, Any]:
        """Return where and when something is read: on this node, of a GPU on request, seconds after EPOCH."""
        device = {} if gpu is None else {"device_id": self.gpus[gpu]}
        time = EPOCH + timedelta(seconds=second)
        return {"session_id": self.session_id, "node_id": self.node_id, "time": time, **device}


@dataclass(slots=True)
class SyntheticStore:
    """Collects rows and writes them to a store that has the schema."""

    connection: duckdb.DuckDBPyConnection
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    keys: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def node(self, hostname: str, platform: str, *, gpus: Sequence[str] = (), **session: Any) -> Node:
        """Add an agent process on a node of its own."""
        session_id, node_id = self._key(), self._key()
        defaults = {
            "agent_version": "0.1.0",
            "virtualization": "kvm",
            "container": "none",
            "orchestrator": "none",
            "os": "Debian GNU/Linux 12",
            "kernel": "6.1.0",
            "architecture": "x86_64",
            "cpu_model": "AMD EPYC 9654 96-Core Processor",
            "cpu_sockets": 1,
            "cpu_cores": 4,
            "cpu_threads": 8,
            "memory_total_bytes": 64_000_000_000,
            "gpu_count": len(gpus),
            "started_at": EPOCH,
            "labels": "{}",
        }
        who = {"session_id": session_id, "node_id": node_id, "hostname": hostname, "platform": platform}
        self.rows["sessions"].append({**defaults, **who, **session})
        devices = tuple(self._gpu(session_id, node_id, name) for name in gpus)
        return Node(session_id=session_id, node_id=node_id, gpus=devices)

    def beside(self, node: Node, **session: Any) -> Node:
        """Add another agent process with the node's identity, and the node's GPUs."""
        (known,) = [row for row in self.rows["sessions"] if row["session_id"] == node.session_id]
        session_id = self._key()
        self.rows["sessions"].append({**known, "session_id": session_id, **session})
        return Node(session_id=session_id, node_id=node.node_id, gpus=node.gpus)

    def _gpu(self, session_id: int, node_id: int, name: str) -> int:
        device_id = self._key()
        device = {"device_id": device_id, "name": name, "compute_capability": "9.0", "power_limit_watts": 300.0}
        at = {"session_id": session_id, "node_id": node_id, "time": EPOCH}
        self.rows["session_devices"].append({**at, **device, "memory_total_bytes": 24_000_000_000})
        return device_id

    def run(
        self,
        run_id: str,
        node: Node,
        *,
        start_seconds: float,
        throughput: float | None = 1000.0,
        status: str = "succeeded",
        parameters: Mapping[str, Any] | None = None,
        phases: bool = True,
        cpu_percent: float = 40.0,
        gpus: Sequence[int] | None = None,
        texts: Mapping[str, str] | None = None,
        rank: int = 0,
        sampled: bool = True,
        **request: Any,
    ) -> None:
        """Add a run of one rank, or its part on this node, with phases and results.

        If it is sampled, with steps and, at 2 Hz, its samples too.
        """
        start = EPOCH + timedelta(seconds=start_seconds)
        at = {"session_id": node.session_id, "node_id": node.node_id, "run_id": run_id}
        defaults = {"workload": "mnist", "environment": "bare", "interference": "none", "repeat": 1, "labels": "{}"}
        asked = {"parameters": json.dumps({"batch_size": 64} if parameters is None else parameters), "command": "[]"}
        self.rows["run_requests"].append({**at, "time": start, **defaults, **asked, **request})
        end = start + timedelta(seconds=RUN_SECONDS)
        for time, state in ((start, "queued"), (start, "running"), (end, status)):
            code = {"succeeded": 0, "failed": 1}.get(state)
            self.rows["run_states"].append({**at, "time": time, "status": state, "exit_code": code})
        for device_id in node.gpus if gpus is None else gpus:  # as a workload that reports its devices
            self.rows["run_devices"].append(
                {**at, "time": start, "rank": rank, "device_id": device_id, "found_by": "workload"}
            )
        for name, seconds in PHASES.items() if phases else ():
            time = start + timedelta(seconds=seconds)
            self.rows["run_events"].append({**at, "rank": rank, "time": time, "event": "phase", "name": name})
        if throughput is not None and status == "succeeded":
            self._results({**at, "rank": rank, "time": end}, throughput, texts or {})
            if sampled:
                self._steps({**at, "rank": rank}, end, throughput)
        if sampled:
            self._samples(node, run_id, start, cpu_percent)

    def next_run(self, node: Node, **run: Any) -> dict[str, Any]:
        """Add a run after those that are there; return its identity, its place and when it ended."""
        turn = len(self.rows["run_requests"])
        start_seconds = turn * (RUN_SECONDS + 1)
        self.run(f"run-{turn}", node, start_seconds=start_seconds, **run)
        return {**node.at(start_seconds + RUN_SECONDS), "run_id": f"run-{turn}"}

    def report(
        self,
        at: Mapping[str, Any],
        results: Mapping[str, float | str],
        *,
        rank: int = 0,
        unit: str | None = None,
        phase: str | None = None,
    ) -> None:
        """Add what a rank of a run reported, by name: numbers and texts."""
        for name, value in results.items():
            column = "value_text" if isinstance(value, str) else "value"
            row = {"name": name, column: value, "unit": unit, "phase": phase}
            self.rows["results"].append({"rank": rank, **at, **row})

    def _results(self, at: Mapping[str, Any], throughput: float, texts: Mapping[str, str]) -> None:
        self.report(at, {"throughput": throughput}, unit="items/s", phase="measure")
        self.report(at, {"accuracy": 98.5 + self.chance.gauss(0, 0.05)}, unit="%")
        self.report(at, {"loss": 0.05, "parameters": 1_199_882.0})
        self.report(at, {"peak_memory_allocated": 3e9}, unit="bytes")
        self.report(at, {"threads": 8.0, **texts})

    def _steps(self, at: Mapping[str, Any], end: datetime, throughput: float) -> None:
        begin = end - timedelta(seconds=TEARDOWN_SECONDS + MEASURE_SECONDS)
        for step in range(10):
            wall = 64 / throughput
            time = begin + timedelta(seconds=step + 1)
            row = {"time": time, "phase": "measure", "step": step, "wall_seconds": wall, "items": 64.0}
            self.rows["steps"].append({**at, **row})

    def _samples(self, node: Node, run_id: str, start: datetime, cpu_percent: float) -> None:
        for tick in range(2 * RUN_SECONDS):
            at = {"session_id": node.session_id, "node_id": node.node_id, "time": start + timedelta(seconds=tick / 2)}
            busy = tick / 2 >= SETUP_SECONDS
            used = 8e9 + 1e8 * self.chance.random()
            self.rows["host_samples"].append(
                {
                    **at,
                    "cpu_percent": cpu_percent + self.chance.gauss(0, 1) if busy else 10.0,
                    "memory_used_bytes": int(used),
                    "memory_total_bytes": 64_000_000_000,
                }
            )
            self.rows["process_samples"].append(
                {**at, "run_id": run_id, "cpu_cores": 2.0, "rss_bytes": 900_000_000, "anonymous_bytes": 600_000_000}
            )
            for device_id in node.gpus:
                self.gpu_sample(at, device_id, utilization_percent=80.0 + self.chance.gauss(0, 2) if busy else 0.0)

    def gpu_sample(self, at: Mapping[str, Any], device_id: int, **values: Any) -> None:
        """Add one sample of a GPU."""
        defaults = {
            "memory_used_bytes": 4_000_000_000,
            "memory_total_bytes": 24_000_000_000,
            "power_watts": 150.0,
            "temperature_celsius": 60.0,
            "sm_clock_mhz": 1500.0,
            "throttle_reasons": 0,
        }
        self.rows["gpu_samples"].append({**at, "device_id": device_id, **defaults, **values})

    def write(self, *, summarize: bool = True) -> None:
        """Write all rows, and the runs' summaries."""
        for table, rows in ((table, rows) for table, rows in self.rows.items() if rows):
            columns = list(dict.fromkeys(column for row in rows for column in row))
            arrow = pa.table({column: [row.get(column) for row in rows] for column in columns})
            self.connection.register("arriving", arrow)
            self.connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM arriving")
            self.connection.unregister("arriving")
        runs = [row["run_id"] for row in self.rows["run_requests"]]
        self.rows.clear()
        if summarize:
            summarize_runs(self.connection, runs, COMPUTED_AT)

    def only_run(self, on_gpus: int = 0, **run: Any) -> Node:
        """Add the run `run-1` on a node with so many GPUs."""
        node = self.node("spruce", "laptop", gpus=["NVIDIA L4"] * on_gpus)
        self.run("run-1", node, start_seconds=0, **run)
        return node

    def figures(self) -> dict[str, float]:
        """Return the figures of the only run that has some."""
        return {row["metric"]: row["value"] for row in self.ask("SELECT metric, value FROM metrics")}

    def ask(self, sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        """Write what was added, and return the rows of a SELECT."""
        if self.rows:
            self.write()
        rows: list[dict[str, Any]] = self.connection.execute(sql, list(parameters)).to_arrow_table().to_pylist()
        return rows

    def _key(self) -> int:
        self.keys += 1
        return self.keys


def quiet_and_burning(store: SyntheticStore, *, repeats: int = 5, gpus: Sequence[str] = ()) -> None:
    """Add what the demo measures: MNIST alone and beside a CPU load, taking turns on one node."""
    node = store.node("spruce", "laptop", gpus=gpus)
    texts = {"torch_version": "2.13.0", "data": "synthetic"}
    for repeat in range(1, repeats + 1):
        for turn, (interference, rate, cpu) in enumerate((("none", 1800.0, 52.0), ("cpu-burn", 1180.0, 98.0))):
            store.run(
                f"{interference}-{repeat}",
                node,
                start_seconds=(2 * repeat + turn) * (RUN_SECONDS + 1),
                throughput=rate * store.chance.gauss(1, 0.02),
                cpu_percent=cpu,
                interference=interference,
                repeat=repeat,
                texts=texts,
            )


def many_sides(
    store: SyntheticStore, *, sides: int, workloads: int, repeats: int = 1, platform: str = "platform", **run: Any
) -> None:
    """Add so many workloads on so many platforms; not every workload ran everywhere."""
    nodes = [store.node(f"node-{side}", f"{platform}-{side}", gpus=["NVIDIA L4"]) for side in range(sides)]
    for repeat in range(1, repeats + 1):
        for workload in range(workloads):
            for side, node in enumerate(nodes):
                if workload % 7 or side % 3 == 0:
                    rate = 100.0 * (side + 1) + workload + repeat
                    store.next_run(node, workload=f"workload-{workload:02}", throughput=rate, repeat=repeat, **run)
