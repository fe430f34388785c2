"""Which of the connected agents are meant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from gpuagent_collector.launching.agents import Agent
from gpuagent_common.errors import GpuAgentError, MisuseError

_LABEL = "label."


class Spread(Enum):
    """On how many of the agents that fit."""

    # There has to be one.
    ONE = "one"
    # On one of them, whichever has least to do.
    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one --on asks for; all of it has to hold. None: anything."""

    text: str
    platform: str | None = None
    node: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Read `platform=…,node=…,label.KEY=…`.

        Raises:
            MisuseError: it is not of that form, or says something twice.
        """
        terms: dict[str, str] = {}
        for term in text.split(","):
            name, equals, value = term.partition("=")
            if (
                not equals
                or not value
                or not (name in ("platform", "node") or name.removeprefix(_LABEL) not in ("", name))
            ):
                raise MisuseError(
                    f"--on takes platform=NAME, node=NAME and label.KEY=VALUE, comma-separated; not {term!r}"
                )
            if name in terms:
                raise MisuseError(f"--on {text} says {name} twice; for either of two write --on twice")
            terms[name] = value
        labels = {name.removeprefix(_LABEL): value for name, value in terms.items() if name.startswith(_LABEL)}
        return cls(text=text, platform=terms.get("platform"), node=terms.get("node"), labels=labels)

    def fits(self, agent: Agent) -> bool:
        """Return whether an agent is what this asks for."""
        return (
            self.platform in (None, agent.platform)
            and self.node in (None, agent.hostname, (agent.hostname or "").partition(".")[0], agent.node_uuid)
            and all(agent.labels.get(name) == value for name, value in self.labels.items())
        )


def choose(agents: Sequence[Agent], targets: Sequence[Target], spread: Spread) -> list[Agent]:
    """Return the agents to launch on; with ANY all that fit, the one with least to do first.

    Args:
        agents: those that are connected.
        targets: an agent has to fit one of them; without any all fit.
        spread: on how many.

    Raises:
        GpuAgentError: none fits.
        MisuseError: more fit than may.
    """
    chosen = [agent for agent in agents if not targets or any(target.fits(agent) for target in targets)]
    wanted = " or ".join(target.text for target in targets)
    if not chosen:
        raise GpuAgentError(
            f"no connected agent is {wanted}" if agents else "no agent is connected; on a node: gpuagent start"
        )
    if spread is Spread.ANY:
        return sorted(chosen, key=lambda agent: agent.open_runs)
    if spread is Spread.ONE and len(chosen) > 1:
        fitting = f"are {wanted}" if wanted else "are connected"
        raise MisuseError(f"{len(chosen)} agents {fitting}: say more with --on, or --all or --any of them")
    return chosen
