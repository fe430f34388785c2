"""A real agent in this process and a real collector beside it; only NVML is replayed."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuagent.agent import Agent
from gpuagent.agent_config import AgentConfig
from gpuagent_collector.query.remote import RemoteReader
from tests.support.nvml_replay import NvmlRecording
from tests.support.servers import Node, until


class Site:
    """A node whose GPUs are recorded, with its agent and collector; commands find both."""

    def __init__(self, node: Node) -> None:
        node.serve()
        self.node = node
        token = Path(node.environment["GPUAGENT_TOKEN_FILE"])
        self._reader = RemoteReader(node.environment["GPUAGENT_COLLECTOR"], token.read_text().strip())
        self._config = AgentConfig(
            collector=node.environment["GPUAGENT_COLLECTOR"],
            token_file=token,
            platform="here",
            python=sys.executable,
            spool=Path(node.environment["GPUAGENT_SPOOL_DIR"]),
        )

    def ask(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._reader.sql(sql).to_pylist()
        return rows

    def count(self, rest: str) -> int:
        """Return the number of rows of `rest`: a table and conditions."""
        return int(self.ask(f"SELECT count(*) AS n FROM {rest}")[0]["n"])

    def await_rows(self, rest: str, more_than: int = 0) -> None:
        until(lambda: self.count(rest) > more_than, f"more than {more_than} {rest}")

    def program(self, *, code: int = 0) -> list[str]:
        """Return a command that runs until the file `go` is there."""
        go = shlex.quote(str(self.node.folder / "go"))
        return ["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; exit {code}"]

    def let_go(self) -> None:
        (self.node.folder / "go").touch()

    @contextmanager
    def agent(self, nvml: NvmlRecording) -> Iterator[Agent]:
        with Agent(self._config, open_nvml=nvml.open) as running:
            yield running
        assert nvml.open_sessions == 0

    def close(self) -> None:
        self._reader.close()
