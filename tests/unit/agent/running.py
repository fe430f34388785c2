"""A runner with its spool, and runs of small programs for it."""

import os
import queue
import sys
from pathlib import Path
from typing import Any

from gpuagent.clock import SystemClock
from gpuagent.delivery.pipeline import Pipeline
from gpuagent.delivery.spool import Spool
from gpuagent.environments.bare import Bare
from gpuagent.runs.events import Tails
from gpuagent.runs.planning import PlannedRun, make_job
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_proto.v1.records_pb2 import Records
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate
from tests.support.parts import make_runner
from tests.support.servers import LIMIT_SECONDS

REPORT = """
import json, os, sys, time
def report(**event):
    with open(os.environ["GPUAGENT_RUN_DIR"] + "/events.0.0.jsonl", "a") as file:
        file.write(json.dumps({"t": time.time_ns(), **event}) + "\\n")
"""


def plan(code: str, run_id: str = "r", **changes: Any) -> PlannedRun:
    asked = RunSpec(name="test", experiment="e", first_repeat=1)
    asked.MergeFrom(changes.pop("asked", RunSpec()))
    program = changes.pop("program", (sys.executable, "-c", REPORT + code))
    job = make_job(asked, run_id, program, None, (), changes.pop("variables", os.environ))
    fields: dict[str, Any] = {"parameters": {"batch-size": 64}, "environment": Bare(), "interference": {}}
    return PlannedRun(**{"asked": asked, "job": job, "required_results": (), **fields, **changes})


class Node:
    def __init__(self, folder: Path, node_lock: Path | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.spool = Spool(folder / "spool.sqlite", node_uuid="n", limit_bytes=1 << 30)
        buffer = RecordBuffer()
        tails = Tails(buffer)
        self.pipeline = Pipeline(
            buffer=buffer,
            spool=self.spool,
            clock=SystemClock(),
            tail=tails.read,
            on_spooled=lambda: None,
            interval_seconds=1,
        )
        self.runner = make_runner(folder, buffer, tails, self.pipeline.flush, node_lock=node_lock)
        self.updates: queue.SimpleQueue[RunUpdate] = queue.SimpleQueue()

    def states(self, run_id: str = "r") -> list[str]:
        return [row["status"] for row in self.rows("run_states") if row["run_id"] == run_id]

    def rows(self, table: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for message in self.spool.messages_after(0, limit=10_000):
            for part in Records.FromString(message.records).tables:
                if part.name == table:
                    rows: list[dict[str, str]] = [{} for _ in range(part.rows)]
                    for column in part.columns:
                        if column.WhichOneof("values") == "texts":
                            offsets = memoryview(column.texts.offsets).cast("i")
                            for index, row in enumerate(rows):
                                row[column.name] = column.texts.utf8[offsets[index] : offsets[index + 1]].decode()
                        elif column.WhichOneof("values") == "integers":
                            for row, number in zip(rows, memoryview(column.integers).cast("q"), strict=True):
                                row[column.name] = str(number)
                    found += rows
        return found

    def until(self, status: str) -> RunUpdate:
        while (update := self.updates.get(timeout=LIMIT_SECONDS)).status != status:
            pass
        return update


def life(node: Node) -> tuple[int, int]:
    """Return the begin and the end of the run, as a collector reads them."""
    node.pipeline.flush()
    states = node.rows("run_states")
    started = max(int(row["time"]) for row in states if row["status"] == "running")
    return started, int(states[-1]["time"])
