"""A collector for many tests: to start one takes longer than most of them ask of it."""

import re
import uuid
from pathlib import Path
from typing import Any

from tests.support.servers import ForkingNode, Node

# What is read of runs, and has a node of its own; of metrics, that of their run.
_TABLES = "cgroup_samples|host_samples|images|process_samples|results|run_events|runs|sessions|steps"


class SharingNode(Node):
    """A node that delivers to the collector of another; of what is stored there, it sees its own."""

    def __init__(self, folder: Path, served: Node) -> None:
        super().__init__(folder)
        self.name = uuid.uuid4().hex
        for name in ("GPUAGENT_COLLECTOR", "GPUAGENT_TOKEN_FILE"):
            self.environment[name] = served.environment[name]
        self.environment |= {"GPUAGENT_NODE_ID": self.name, "GPUAGENT_NODE_NAME": self.name}

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a SELECT from this node's rows of the tables."""
        mine = f"node_id IN (SELECT node_id FROM main.sessions WHERE hostname = '{self.name}')"
        names = sorted(set(re.findall(rf"\b({_TABLES})\b", sql)))
        tables = [f"{name} AS (SELECT * FROM main.{name} WHERE {mine})" for name in names]
        if re.search(r"\bmetrics\b", sql):
            runs = f"SELECT run_id FROM main.runs WHERE {mine}"
            tables.append(f"metrics AS (SELECT * FROM main.metrics WHERE run_id IN ({runs}))")
        return super().ask(f"WITH {', '.join(tables)} {sql}")


class ForkingSharingNode(SharingNode, ForkingNode):
    """Such a node whose commands are forks."""
