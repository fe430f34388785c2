"""The connected agents, and what the store knows of their nodes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuagent_collector.query.ask import Ask
from gpuagent_proto.v1.run_service_pb2 import ConnectedAgent

AGENTS_SQL = """
WITH asked AS (
    SELECT unnest(CAST(? AS VARCHAR[])) AS session_uuid
), gpus AS (
    SELECT session_id, list(name ORDER BY device_index) FILTER (parent_device_id IS NULL) AS gpu_names
    FROM (FROM session_devices QUALIFY row_number() OVER (PARTITION BY session_id, device_id ORDER BY time DESC) = 1)
    GROUP BY session_id
), busy AS (
    SELECT session_id, count(*) AS open_runs FROM run_parts WHERE status IN ('queued', 'running') GROUP BY session_id
)
SELECT session_uuid, hostname, platform, labels, gpu_names, coalesce(open_runs, 0) AS open_runs
FROM sessions JOIN asked USING (session_uuid) LEFT JOIN gpus USING (session_id) LEFT JOIN busy USING (session_id)
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A connected agent.

    Attributes:
        session_uuid: its session, by which it is launched on.
        allows_commands: whether it takes commands and images, and not only built-in workloads.
        hostname, platform: None: it has just connected, and the store does not know it yet.
        gpus: names of its GPUs, one each.
        open_runs: how many of its runs run or wait, as far as the store knows.
    """

    session_uuid: str
    node_uuid: str
    version: str
    allows_commands: bool
    hostname: str | None = None
    platform: str | None = None
    labels: Mapping[str, str]
    gpus: Sequence[str] = ()
    open_runs: int = 0

    @property
    def node(self) -> str:
        """What people call its node."""
        return self.hostname or self.node_uuid


def describe(connected: Sequence[ConnectedAgent], ask: Ask) -> list[Agent]:
    """Return the connected agents with what the store knows of them, in the order of platforms and nodes."""
    rows = ask(AGENTS_SQL, [[agent.session_uuid for agent in connected]]) if connected else []
    known = {row["session_uuid"]: row for row in rows}
    agents = [_agent(agent, known.get(agent.session_uuid, {})) for agent in connected]
    return sorted(agents, key=lambda agent: (agent.platform or "", agent.node, agent.session_uuid))


def _agent(connected: ConnectedAgent, row: Mapping[str, Any]) -> Agent:
    return Agent(
        session_uuid=connected.session_uuid,
        node_uuid=connected.node_uuid,
        version=connected.agent_version,
        allows_commands=connected.allows_commands,
        hostname=row.get("hostname"),
        platform=row.get("platform"),
        labels=_labels(row.get("labels")),
        gpus=tuple(name or "unknown" for name in row.get("gpu_names") or ()),
        open_runs=row.get("open_runs", 0),
    )


def _labels(text: str | None) -> Mapping[str, str]:
    labels = json.loads(text) if text else {}
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}
