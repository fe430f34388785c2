"""The agent that does a command's work: the node's running one, or one that lasts as long as the command."""

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent.cli.delivery import tell_undelivered
from gpuagent.errors import LockedError
from gpuagent_common.errors import GpuAgentError, MisuseError

if TYPE_CHECKING:
    from gpuagent.agent import Agent
    from gpuagent.agent_config import AgentConfig
    from gpuagent.service import AgentClient
    from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

# Options that belong to the agent, which one that runs already has settled.
_AGENT_S_OWN = (
    "platform",
    "collector",
    "token_file",
    "ca_file",
    "client_cert",
    "client_key",
    "rate_hz",
    "spool",
    "per_core",
)

# How long an agent that starts or stops may take to listen or to let go of the node.
_AGENT_STARTS_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgent:
    """What an agent does for a command.

    Attributes:
        submit: has runs executed, and yields what becomes of them until they have ended; closing it cancels them.
        waiting: returns how many messages the collector has not acknowledged of an agent that goes on; one of our own
            delivers when it stops.
        left_behind: returns, afterwards, how many messages an agent of our own could not deliver.
    """

    submit: Callable[["RunSpec"], Generator["RunUpdate", None, None]]
    waiting: Callable[[], int]
    left_behind: Callable[[], int]


@contextlib.contextmanager
def node_agent(config: "AgentConfig", given: Sequence[str], first: "RunSpec") -> Iterator[NodeAgent]:
    """Yield the node's agent, or one of our own where none runs.

    Args:
        config: of the agent, if it is ours.
        given: names of the agent's own options on the command line.
        first: what will be submitted first: an agent of our own does not begin to sample for what cannot be planned.
    """
    from gpuagent import locations
    from gpuagent.agent_config import find_place
    from gpuagent.service import AgentClient, socket_path
    from gpuagent_common.keys import key

    _, node_uuid = find_place(config)
    socket = socket_path(locations.runtime_directory(os.environ), key(node_uuid))
    agent: Agent | AgentClient = _agent_or_client(config, socket)
    if isinstance(agent, AgentClient):
        with contextlib.closing(agent):
            _check_options(agent, config, given)
            yield NodeAgent(submit=agent.submit, waiting=lambda: _waiting(agent), left_behind=lambda: 0)
        return
    agent.planner.plan(first)
    try:
        with agent:
            yield NodeAgent(
                submit=lambda spec: agent.runner.follow(agent.planner.plan(spec)),
                waiting=lambda: 0,
                left_behind=lambda: agent.undelivered + agent.lost,
            )
    finally:
        if not tell_undelivered(agent):
            click.echo(f"gpuagent: stored by the collector at {agent.config.collector}", err=True)
    if agent.failure:
        raise GpuAgentError(f"the agent ended itself: {agent.failure}")


def given_to_agent(ctx: click.Context) -> list[str]:
    """Return which of an agent's own options stand on the command line."""
    on_command_line = click.core.ParameterSource.COMMANDLINE
    return [name for name in _AGENT_S_OWN if ctx.get_parameter_source(name) is on_command_line]


def _waiting(client: "AgentClient") -> int:
    status = client.status()
    if status is None:
        raise GpuAgentError("the agent on this node has ended")
    return status.waiting_messages


def _check_options(client: "AgentClient", config: "AgentConfig", given: Sequence[str]) -> None:
    """Refuse what would be stored under another name than asked for, and say which options do nothing."""
    status = client.status()
    if "platform" in given and status and status.platform != config.platform:
        raise MisuseError(
            f"the agent that runs on this node samples as platform {status.platform!r}, not {config.platform!r}; "
            "stop it, or leave --platform out"
        )
    ignored = [f"--{name.removesuffix('_hz').replace('_', '-')}" for name in given if name != "platform"]
    if ignored:
        click.echo(f"gpuagent: this node's agent is running already; {', '.join(ignored)} is left to it", err=True)


def _agent_or_client(config: "AgentConfig", socket: Path) -> "Agent | AgentClient":
    """Return the node's running agent, or a new one of our own where none runs."""
    from gpuagent.agent import Agent
    from gpuagent.service import find_agent

    deadline = time.monotonic() + _AGENT_STARTS_SECONDS
    while True:
        client = find_agent(socket)
        if client:
            return client
        try:
            return Agent(config)
        except LockedError:
            # Another agent has the node but does not listen: it is just starting, or just stopping.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
