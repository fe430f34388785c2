"""Hands work to the chosen agents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.launching.choice import Spread


class Answer(Protocol):
    """What an agent says to an offer of work."""

    @property
    def refusal(self) -> str:
        """Why it takes nothing; empty when it does."""
        ...


Said = TypeVar("Said", bound=Answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered(Generic[Said]):
    """What came of an offer.

    Attributes:
        taken: agents that took the work, and what they said.
        refusals: agents that took nothing, and why.
    """

    taken: Sequence[tuple[Agent, Said]]
    refusals: Sequence[tuple[Agent, str]]


def offer(agents: Sequence[Agent], spread: Spread, ask: Callable[[Sequence[str]], Sequence[Said]]) -> Offered[Said]:
    """Offer work to the agents: to each of them, or with ANY to one after the other until one takes it.

    Args:
        agents: those that were chosen.
        spread: on how many of them.
        ask: asks the agents of these sessions, and returns what each says, in their order.

    Raises:
        GpuAgentError: the collector cannot be asked.
    """
    groups = [[agent] for agent in agents] if spread is Spread.ANY else [agents]
    refusals: list[tuple[Agent, str]] = []
    for group in groups:
        answered = list(zip(group, ask([agent.session_uuid for agent in group]), strict=True))
        taken = [(agent, answer) for agent, answer in answered if not answer.refusal]
        refused = [(agent, answer.refusal) for agent, answer in answered if answer.refusal]
        if taken or spread is not Spread.ANY:
            return Offered(taken=taken, refusals=refused)
        refusals += refused
    return Offered(taken=(), refusals=refusals)
