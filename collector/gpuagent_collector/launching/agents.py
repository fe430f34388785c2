"""The connected agents: their description, the selection of some, the offer of work to them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from gpuagent_collector.json_cells import read_object
from gpuagent_collector.query.ask import Ask
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.run_service_pb2 import AgentExperiment, ConnectedAgent, LaunchedRuns

AGENTS_SQL = """
WITH asked AS (
    SELECT unnest(?::VARCHAR[]) AS session_uuid
), gpus AS (
    SELECT session_id, (list(name ORDER BY device_index) FILTER (parent_device_id IS NULL))[1:32] AS gpu_names
    FROM (FROM session_devices QUALIFY row_number() OVER (PARTITION BY session_id, device_id ORDER BY time DESC) = 1)
    GROUP BY session_id
), busy AS (
    SELECT session_id, count(*) AS open_runs FROM run_parts WHERE status IN ('queued', 'running') GROUP BY session_id
)
SELECT session_uuid, hostname, platform, labels, gpu_names, coalesce(open_runs, 0) AS open_runs
FROM sessions JOIN asked USING (session_uuid) LEFT JOIN gpus USING (session_id) LEFT JOIN busy USING (session_id)
""".strip()

_LABEL = "label."


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A connected agent.

    Attributes:
        session_uuid: its session, which launches address.
        allows_commands: whether it accepts commands and images besides built-in workloads.
        hostname, platform: None: it has just connected, and the store has no session of it yet.
        gpus: names of its GPUs, one each.
        open_runs: number of its runs that are queued or running in the store.
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
        """The hostname of its node, or the UUID where the hostname is unknown."""
        return self.hostname or self.node_uuid


def describe_agents(connected: Sequence[ConnectedAgent], ask: Ask) -> list[Agent]:
    """Return the connected agents with their facts from the store, ordered by platform and node."""
    rows = ask(AGENTS_SQL, [[agent.session_uuid for agent in connected]]) if connected else []
    known = {row["session_uuid"]: row for row in rows}
    agents = []
    for agent in connected:
        row: Mapping[str, Any] = known.get(agent.session_uuid, {})
        labels = read_object(row.get("labels"), "labels")
        agents.append(
            Agent(
                session_uuid=agent.session_uuid,
                node_uuid=agent.node_uuid,
                version=agent.agent_version,
                allows_commands=agent.allows_commands,
                hostname=row.get("hostname"),
                platform=row.get("platform"),
                labels={name: str(value) for name, value in labels.items()},
                gpus=tuple(name or "unknown" for name in row.get("gpu_names") or ()),
                open_runs=row.get("open_runs", 0),
            )
        )
    return sorted(agents, key=lambda agent: (agent.platform or "", agent.node, agent.session_uuid))


class Spread(Enum):
    """The number of matching agents to launch on."""

    # The only one that matches; several are an error.
    ONE = "one"
    # The one with the fewest open runs that accepts the work.
    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The terms of one --on, which an agent must match together. None: any value."""

    text: str
    platform: str | None = None
    node: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Read `platform=…,node=…,label.KEY=…`.

        Raises MisuseError: the text has another form, or names one term twice.
        """
        terms: dict[str, str] = {}
        for term in text.split(","):
            name, _, value = term.partition("=")
            is_known = name in ("platform", "node") or name.removeprefix(_LABEL) not in ("", name)
            if not value or not is_known:
                raise MisuseError(
                    f"--on takes platform=NAME, node=NAME and label.KEY=VALUE, comma-separated; not {term!r}"
                )
            if name in terms:
                raise MisuseError(f"--on {text} has {name} twice; to accept either value, repeat --on")
            terms[name] = value
        labels = {name.removeprefix(_LABEL): value for name, value in terms.items() if name.startswith(_LABEL)}
        return cls(text=text, platform=terms.get("platform"), node=terms.get("node"), labels=labels)

    def matches(self, agent: Agent) -> bool:
        """Return whether an agent matches all terms."""
        return (
            self.platform in (None, agent.platform)
            and self.node in (None, agent.hostname, (agent.hostname or "").partition(".")[0], agent.node_uuid)
            and all(agent.labels.get(name) == value for name, value in self.labels.items())
        )


def choose_agents(agents: Sequence[Agent], targets: Sequence[Target], spread: Spread) -> list[Agent]:
    """Return the agents to launch on; with ANY all that match, the one with the fewest open runs first.

    Args:
        targets: an agent must match one of them; without any, all agents match.
        spread: how many of them to choose.

    Raises:
        GpuAgentError: no agent matches.
        MisuseError: several agents match, and `spread` is ONE.
    """
    chosen = [agent for agent in agents if not targets or any(target.matches(agent) for target in targets)]
    wanted = " or ".join(target.text for target in targets)
    if not agents:
        raise GpuAgentError("no agent is connected; start one on a node: gpuagent start")
    if not chosen:
        raise GpuAgentError(f"no connected agent matches {wanted}")
    if spread is Spread.ANY:
        return sorted(chosen, key=lambda agent: agent.open_runs)
    if spread is Spread.ONE and len(chosen) > 1:
        matching = f"match {wanted}" if wanted else "are connected"
        raise MisuseError(f"{len(chosen)} agents {matching}; choose with --on, or give --all or --any")
    return chosen


# The answer to an offer of work, whose refusal is empty where the agent accepts.
AnAnswer = TypeVar("AnAnswer", AgentExperiment, LaunchedRuns)
Refusals = Sequence[tuple[Agent, str]]


def offer_work(
    agents: Sequence[Agent], spread: Spread, send: Callable[[Sequence[str]], Sequence[AnAnswer]]
) -> tuple[list[tuple[Agent, AnAnswer]], Refusals]:
    """Offer work to all agents at once, or with ANY to one after the other until one accepts.

    Args:
        spread: see `Spread`.
        send: offers the work to the agents of these sessions; returns their answers in the same order.

    Returns:
        The agents that accepted it with their answers, and those that refused it with their reasons.

    Raises:
        GpuAgentError: the collector cannot be asked.
    """
    refusals: list[tuple[Agent, str]] = []
    for group in [[agent] for agent in agents] if spread is Spread.ANY else [agents]:
        answers = list(zip(group, send([agent.session_uuid for agent in group]), strict=True))
        accepted = [(agent, answer) for agent, answer in answers if not answer.refusal]
        refused = [(agent, answer.refusal) for agent, answer in answers if answer.refusal]
        if accepted:
            # With ANY, refusals before the one that accepts need no action of the user.
            return accepted, refused
        refusals += refused
    return [], refusals
