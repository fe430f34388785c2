"""Which connected agents a launch is for, and which of them refuse, as users are told."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.output.text import harmless
from gpuagent_common.errors import GpuAgentError

if TYPE_CHECKING:
    from gpuagent_collector.launching.agents import Agent
    from gpuagent_collector.launching.choice import Spread, Target
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.query.remote import RemoteReader

_LOOKS = 20
# How often, and after how long, an agent that has just connected is looked at again.
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which agents the user means, and on how many of those that fit."""

    targets: "Sequence[Target]"
    spread: "Spread"


def chosen_agents(client: "RunsClient", reader: "RemoteReader", choice: Choice) -> "Sequence[Agent]":
    """Return the agents to launch on; where they cannot be told, list all there are.

    Raises:
        GpuAgentError: none fits, or too many do.
    """
    from gpuagent_collector.launching.choice import choose

    agents = _agents(client, reader)
    try:
        return choose(agents, choice.targets, choice.spread)
    except GpuAgentError:
        _list(agents)
        raise


def _agents(client: "RunsClient", reader: "RemoteReader") -> "Sequence[Agent]":
    """Return the agents; one that has just connected is given the time to say what it is."""
    from gpuagent_collector.launching.agents import describe

    ask = asking(reader, show_sql=False)
    for _ in range(_LOOKS):
        agents = describe(client.agents(), ask)
        if all(agent.platform for agent in agents):
            break
        time.sleep(_LOOK_SECONDS)
    return agents


def _list(agents: "Sequence[Agent]") -> None:
    from gpuagent_collector.launching.show import agent_columns
    from gpuagent_collector.output.listing import print_list
    from gpuagent_collector.output.terminal import plain_console

    if agents:
        print_list(agent_columns(), [{"agent": agent} for agent in agents], plain_console(sys.stderr))


def tell_refusals(refusals: "Sequence[tuple[Agent, str]]") -> None:
    """Say who takes nothing, and why."""
    for agent, refusal in refusals:
        who = f"the agent on {agent.node}, platform {agent.platform}"
        click.echo(f"collector: {harmless(f'{who}, refuses: {refusal}')}", err=True)
