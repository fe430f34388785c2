"""A collector, the real agent, and a workload that reports steps: its events file says what it made."""

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

from gpuagent_collector.query.reader import open_reader
from gpuagent_common.errors import GpuAgentError
from tests.fault.invariants import Findings
from tests.support.servers import LIMIT_SECONDS, Node, until

# Reports a step every 10 ms, and never ends by itself.
STEPS = """
import json, os, time
directory = os.environ["GPUAGENT_RUN_DIR"]
with open(f"{directory}/events.0.0.jsonl", "a", buffering=1) as file:
    for step in range(10**9):
        event = {"t": time.time_ns(), "event": "step", "phase": "measure", "step": step, "wall_seconds": 0.01}
        file.write(json.dumps(event) + "\\n")
        time.sleep(0.01)
"""

_STEPS = "SELECT run_id, step, count(*) AS times FROM steps GROUP BY run_id, step"
_OPEN = "SELECT count(*) AS open FROM runs WHERE status IN ('queued', 'running')"
_TWICE = "SELECT count(*) AS rows FROM (FROM host_samples SELECT 1 GROUP BY session_id, time HAVING count(*) > 1)"


def steps_written(run_directory: Path) -> int:
    file = run_directory / "events.0.0.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


class AgentSite:
    """One collector and one agent; runs are started one after the other."""

    def __init__(self, folder: Path) -> None:
        self.node = Node(folder)
        self.collector = self.node.serve()
        self.address = self.node.environment["GPUAGENT_COLLECTOR"]
        self.agent = self.start_agent()

    def start_agent(self) -> "subprocess.Popen[str]":
        """Start the agent and wait until it samples."""
        self.agent = self.node.start_agent("--platform", "here")
        return self.agent

    def start_run(self, steps: int) -> "subprocess.Popen[str]":
        """Start a run, and wait until it has made so many steps."""
        known = self.run_directories()
        run = self.node.start("gpuagent", "run", "--", sys.executable, "-c", STEPS, log="run.log")
        until(lambda: any(steps_written(each) > steps for each in self.run_directories() - known), "steps")
        return run

    def run_directories(self) -> set[Path]:
        folder = self.node.folder / "spool" / "runs"
        return set(folder.iterdir()) if folder.exists() else set()

    def workload(self) -> psutil.Process:
        children = psutil.Process(self.agent.pid).children(recursive=True)
        return next(each for each in children if STEPS in each.cmdline() and len(each.children()) == 0)

    def kill_agent(self) -> None:
        """Kill the agent; wait until what it started has ended, which nobody tells it to."""
        started = psutil.Process(self.agent.pid).children(recursive=True)
        self.node.stop(self.agent, signal.SIGKILL)
        _, alive = psutil.wait_procs(started, timeout=LIMIT_SECONDS)
        assert not alive, f"left running: {alive}"

    def settle(self) -> float:
        """Wait until all steps are stored and all runs have ended; return the seconds that took."""
        started = time.monotonic()
        until(self._is_settled, "the runs' ends and steps")
        return time.monotonic() - started

    def _is_settled(self) -> bool:
        time.sleep(0.05)
        try:
            return not self._ask(_OPEN)[0]["open"] and not self.findings().lost
        except GpuAgentError:
            return False

    def findings(self) -> Findings:
        stored = Counter({(row["run_id"], row["step"]): row["times"] for row in self._ask(_STEPS)})
        made = {(each.name, step) for each in self.run_directories() for step in range(steps_written(each))}
        lost, twice = made - stored.keys(), sum(times > 1 for times in stored.values())
        twice += self._ask(_TWICE)[0]["rows"]
        return Findings(lost=frozenset(range(len(lost))), duplicated=frozenset(range(twice)))

    def _ask(self, sql: str) -> list[dict[str, int]]:
        reader = open_reader(address=self.address, token_file=self.node.folder / "token", store=None)
        try:
            rows: list[dict[str, int]] = reader.sql(sql).to_pylist()
            return rows
        finally:
            reader.close()

    def leftovers(self) -> list[str]:
        left = psutil.Process(self.agent.pid).children(recursive=True)
        return [f"process {each.pid} ({each.status()})" for each in left]

    def close(self) -> None:
        self.node.close()
