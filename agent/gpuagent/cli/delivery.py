"""What a command says of its agent's messages when the agent has stopped."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gpuagent.agent import Agent


def tell_undelivered(agent: "Agent") -> bool:
    """Say how many messages are lost or wait, and why; return whether there are any."""
    if agent.lost:
        click.echo(f"gpuagent: {agent.lost} messages are lost: {agent.spool_directory} could not be written", err=True)
    if agent.undelivered:
        reason = agent.uplink.last_error or f"the collector at {agent.config.collector} did not take them in time"
        click.echo(
            f"gpuagent: {agent.undelivered} messages wait in {agent.spool_directory}: {reason}. "
            "The next agent on this node delivers them.",
            err=True,
        )
    return bool(agent.lost or agent.undelivered)
