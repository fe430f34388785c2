"""`make verify-gpu`: the agent's GPU figures beside nvidia-smi's, over the same window of a real training run."""

import csv
import datetime
import json
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.servers import Node

_FIELDS = "timestamp,uuid,utilization.gpu,memory.used,power.draw.instant,temperature.gpu,clocks.sm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One quantity as both saw it."""

    name: str
    unit: str
    ours: float | None
    theirs: float | None
    samples: tuple[int, int]

    def row(self) -> str:
        """Return the quantity as a Markdown table row."""
        difference = "–"
        if self.ours is not None and self.theirs:
            difference = f"{100 * (self.ours / self.theirs - 1):+.2f} %"
        return (
            f"| {self.name} | {_short(self.ours)} {self.unit} ({self.samples[0]}) "
            f"| {_short(self.theirs)} {self.unit} ({self.samples[1]}) | {difference} |"
        )


def main() -> None:
    """Train MNIST on the first GPU while both watch it, and print the table."""
    with tempfile.TemporaryDirectory(prefix="gpuagent-verify-") as folder:
        node = Node(Path(folder))
        log = node.folder / "nvidia-smi.csv"
        with log.open("w") as output:
            query = ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits", "-lms", "100"]
            watcher = subprocess.Popen(query, stdout=output)
            try:
                node.serve()
                run = node.run("gpuagent", "run", "mnist", "--device", "cuda", "--batch-size", "1024", "--json")
            finally:
                watcher.terminate()
                watcher.wait()
            compared = _compare(node, json.loads(run.stdout)[0]["run_id"], log)
            node.close()
    print("| measured phase of `mnist` | gpuagent: mean (samples) | nvidia-smi: mean (samples) | ours by theirs |")
    print("|---|---|---|---|")
    print("\n".join(row.row() for row in compared))


def _compare(node: Node, run_id: str, log: Path) -> list[Compared]:
    window = _ask(
        node,
        "SELECT epoch(min(time) FILTER (name = 'measure')) AS start, "
        "epoch(min(time) FILTER (name = 'teardown')) AS stop "
        f"FROM run_events WHERE event = 'phase' AND run_id = '{run_id}'",
    )[0]
    start, stop = window["start"], window["stop"]
    columns = ("utilization_percent", "memory_used_bytes", "power_watts", "temperature_celsius", "sm_clock_mhz")
    averages = ", ".join(f"avg({name}) AS {name}, count({name}) AS n_{name}" for name in columns)
    devices = f"SELECT device_id FROM run_devices WHERE run_id = '{run_id}'"
    ours = _ask(
        node,
        f"SELECT {averages} FROM gpu_samples WHERE device_id IN ({devices}) AND epoch(time) BETWEEN {start} AND {stop}",
    )[0]
    uuid = _ask(node, f"SELECT uuid FROM devices WHERE device_id IN ({devices})")[0]["uuid"]
    theirs = _read_log(log, uuid, start, stop)
    scale = {"memory_used_bytes": 2**20}
    names = (
        ("utilisation", "%"),
        ("memory used", "MiB"),
        ("power, instant", "W"),
        ("temperature", "°C"),
        ("SM clock", "MHz"),
    )
    return [
        Compared(
            name=name,
            unit=unit,
            ours=None if ours[column] is None else ours[column] / scale.get(column, 1),
            theirs=statistics.mean(values) if values else None,
            samples=(ours[f"n_{column}"], len(values)),
        )
        for (name, unit), column, values in zip(names, columns, theirs, strict=True)
    ]


def _read_log(log: Path, uuid: str, start: float, stop: float) -> list[list[float]]:
    """Return what nvidia-smi said of one GPU between two moments, a list a quantity."""
    quantities: list[list[float]] = [[] for _ in range(5)]
    for fields in csv.reader(log.read_text().splitlines(), skipinitialspace=True):
        if len(fields) == 7 and fields[1] == uuid:
            when = datetime.datetime.strptime(fields[0], "%Y/%m/%d %H:%M:%S.%f").astimezone().timestamp()
            if start <= when <= stop:
                for values, text in zip(quantities, fields[2:], strict=True):
                    values.append(float(text))
    return quantities


def _ask(node: Node, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(node.run("collector", "query", "sql", sql, "--json").stdout)
    return rows


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


if __name__ == "__main__":
    main()
