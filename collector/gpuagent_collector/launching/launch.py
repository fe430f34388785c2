"""Hands work to the chosen agents."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuagent_collector.launching.agents import Agent
from gpuagent_collector.launching.choice import Spread
from gpuagent_collector.launching.client import RunsClient
from gpuagent_collector.launching.progress import LaunchedRun
from gpuagent_proto.v1.run_pb2 import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What came of a launch.

    Attributes:
        runs: what the agents took.
        refusals: agents that took nothing, and why.
    """

    runs: Sequence[LaunchedRun]
    refusals: Sequence[tuple[Agent, str]]


def launch(client: RunsClient, agents: Sequence[Agent], spec: RunSpec, spread: Spread) -> Launched:
    """Have the agents run `spec`: each of them, or with ANY the first one that takes it.

    Raises:
        CollectorError: the collector cannot be asked.
    """
    groups = [[agent] for agent in agents] if spread is Spread.ANY else [agents]
    refusals: list[tuple[Agent, str]] = []
    for group in groups:
        launched = _launch(client, group, spec)
        if launched.runs or spread is not Spread.ANY:
            return launched
        refusals += launched.refusals
    return Launched(runs=(), refusals=refusals)


def _launch(client: RunsClient, agents: Sequence[Agent], spec: RunSpec) -> Launched:
    answers = client.launch([agent.session_uuid for agent in agents], spec)
    answered = list(zip(agents, answers, strict=True))
    return Launched(
        runs=[
            LaunchedRun(run_id=run_id, session_uuid=agent.session_uuid, node=agent.node, platform=agent.platform)
            for agent, answer in answered
            for run_id in answer.run_ids
        ],
        refusals=[(agent, answer.refusal) for agent, answer in answered if answer.refusal],
    )
