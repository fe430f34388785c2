"""Real agents and a real collector. Our commands run in this process, or as a process where that matters."""

import json
import shlex
import signal
import subprocess
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from gpuagent_collector.cli import cli
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.support.servers import Node, until, without_waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The output of a command; `err` ends with its error."""

    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Lab:
    """A collector, and agents by the names of their nodes."""

    def __init__(self, node: Node) -> None:
        """Start the collector; it ends with `node`, as do the agents."""
        self.node = node
        self.node.environment |= {"XDG_CONFIG_HOME": str(node.folder), "COLUMNS": "100"}
        self.collector = self.node.serve()
        self._agents: dict[str, subprocess.Popen[str]] = {}

    def start_agent(self, name: str, *options: str) -> None:
        place = ("--node-id", name, "--node-name", name, "--spool", str(self.node.folder / name))
        self._agents[name] = self.node.start("gpuagent", "start", *place, *options, log=f"{name}.log")

    def end_agent(self, name: str, number: signal.Signals) -> None:
        self.node.stop(self._agents.pop(name), number)

    def restart_collector(self) -> None:
        self.node.stop(self.collector)
        self.collector = self.node.serve(self.node.environment["GPUAGENT_COLLECTOR"])

    def await_agents(self, *names: str) -> None:
        """Wait until exactly these are connected, and described in the store."""
        expected = " or ".join(f"--on node={name}" for name in names)
        until(lambda: self._connected() == set(names), f"the agents {expected}")

    def _connected(self) -> set[str]:
        listed = self.command("launch", "none", "--on", "node=nowhere", code=1).err.splitlines()
        return {line.split()[0] for line in listed[2:-1] if line.split()[1] != "–"}

    def command(self, *words: str, code: int = 0) -> Result:
        """Run `collector WORDS` in this process; fail unless it ends with `code`."""
        result = CliRunner().invoke(cli, words, env=self.node.environment, standalone_mode=False)
        error = result.exception
        if error is not None and not isinstance(error, GpuAgentError):
            raise error
        ended = (2 if isinstance(error, MisuseError) else 1) if error else result.return_value or 0
        assert ended == code, f"{words} gave {ended}: {result.stdout}{result.stderr}{error}"
        return Result(out=result.stdout, err=f"{without_waits(result.stderr)}{error or ''}")

    def start(self, *words: str) -> "Future[Result]":
        """Run `collector WORDS` as a process, while the test does something else."""
        answer: Future[Result] = Future()

        def run() -> None:
            try:
                done = self.node.run("collector", *words)
                answer.set_result(Result(out=done.stdout, err=done.stderr))
            except BaseException as error:  # noqa: BLE001 - it is raised where the answer is asked for
                answer.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return answer

    def launch(self, *words: str, code: int = 0) -> list[str]:
        return [run["run_id"] for run in self.command("launch", "--json", *words, code=code).json()["runs"]]

    def waiting_for(self, gate: Path, *, then: str = "true") -> list[str]:
        """Return arguments that launch a program on the lenient agent, which waits for a file."""
        script = f"echo begun; while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.02; done; {then}"
        return ["--on", "platform=openshift", "--", "sh", "-c", script]

    def ask(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.command("query", "sql", sql, "--json").json()
        return rows

    def status(self, run_id: str) -> tuple[str | None, str | None]:
        rows = self.ask(f"SELECT status, reason FROM runs WHERE run_id = '{run_id}'")
        return (rows[0]["status"], rows[0]["reason"]) if rows else (None, None)

    def await_status(self, run_id: str, status: str) -> None:
        until(lambda: self.status(run_id)[0] == status, f"{run_id} {status}")
