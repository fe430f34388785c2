"""The agent that does a command's work: the node's running one, or one that lasts as long as the command."""

import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent.errors import LockedError
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.waiting import waiting_for

if TYPE_CHECKING:
    from gpuagent.agent import Agent
    from gpuagent.agent_config import AgentConfig
    from gpuagent.service import AgentClient
    from gpuagent_proto.v1.agent_service_pb2 import GpuNow, StatusResponse
    from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

# Options of the agent, which a running one has settled already.
_CONNECTION = ("collector", "token_file", "ca_file", "client_cert", "client_key")
_AGENT_S_OWN = ("platform", *_CONNECTION, "rate_hz", "spool")

# The wait before a run is queued, in words.
PLANNING = "the plan of the run"

# A starting or stopping agent may take this long to listen or to release the node: more than its last delivery.
_AGENT_STARTS_SECONDS = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgent:
    """An agent's services to a command.

    Attributes:
        submit: executes runs, and yields their updates until they have ended; closing it cancels them.
        waiting: returns the number of messages that the collector has not acknowledged; 0 for an agent of our own,
            which delivers when it stops.
        read_gpus: returns the GPUs on which a run has processes, as they are now.
        left_behind: returns, afterwards, the number of messages that an agent of our own could not deliver.
    """

    submit: Callable[["RunSpec"], Generator["RunUpdate", None, None]]
    waiting: Callable[[], int]
    read_gpus: Callable[[str], Sequence["GpuNow"]]
    left_behind: Callable[[], int]


@contextlib.contextmanager
def node_agent(
    config: "AgentConfig", given: Sequence[str], first: "RunSpec", *, place: str = ""
) -> Iterator[NodeAgent]:
    """Yield the node's agent, or one of our own if none runs.

    Args:
        given: names of the agent's own options on the command line.
        first: the first run: an agent of our own does not start for a run that cannot be planned.
        place: the place of what is stored, in words; empty: the address of the collector says it.
    """
    from gpuagent.agent_config import find_place
    from gpuagent.service import AgentClient

    spool, node_uuid = find_place(config)
    agent: Agent | AgentClient = _agent_or_client(config, spool, node_uuid)
    if isinstance(agent, AgentClient) and "collector" in given and (other := _other_collector(agent, config)):
        status = agent.status()
        node_uuid = status.node_uuid if status else node_uuid
        agent.close()
        click.echo(
            f"gpuagent: this node's agent delivers to {other}; an agent beside it delivers to {config.collector} "
            "and waits while the other has a run under way",
            err=True,
        )
        # The same node, and a spool for each collector.
        beside = ",".join(sorted(_addresses(config.collector)))
        folder = config.spool if "spool" in given else spool / "beside" / beside.replace(":", "-")
        config = replace(config, beside=beside, spool=folder, node_id=node_uuid)
        agent = _agent_or_client(config, find_place(config)[0], node_uuid)
    if isinstance(agent, AgentClient):
        with contextlib.closing(agent):
            _check_options(agent, config, given)
            yield NodeAgent(
                submit=agent.submit,
                waiting=lambda: _count_waiting(agent),
                read_gpus=lambda run_id: _gpus_of(run_id, agent.status()),
                left_behind=lambda: 0,
            )
            status = agent.status()
            if status and status.connected:
                click.echo(f"gpuagent: this node's agent delivers to the collector at {status.collector}", err=True)
            elif status:
                reason = status.last_error or f"it is not connected to {status.collector}"
                waiting = f"{status.waiting_messages} messages wait in this node's agent"
                click.echo(f"gpuagent: {waiting}: {reason}", err=True)
        return
    with waiting_for("gpuagent", PLANNING):
        agent.planner.plan(first)
    own: set[str] = set()

    def submit(spec: "RunSpec") -> Generator["RunUpdate", None, None]:
        plans = agent.planner.plan(spec)
        own.update(plan.run_id for plan in plans)
        return agent.runner.follow(plans)

    stopping = contextlib.ExitStack()
    try:
        with stopping, agent:
            try:
                yield NodeAgent(
                    submit=submit,
                    waiting=lambda: 0,
                    read_gpus=lambda run_id: _gpus_of(run_id, agent.status()),
                    left_behind=lambda: agent.undelivered + agent.lost,
                )
            finally:
                if agent.runner.active() - own:
                    waits = "waiting for runs of other commands, which use this command's agent; Ctrl-C cancels them"
                    click.echo(f"gpuagent: {waits}", err=True)
                while agent.runner.active() - own and not agent.failure:
                    time.sleep(0.1)
                stopping.enter_context(waiting_for("gpuagent", f"{config.collector} to take the last messages"))
    finally:
        # An agent that failed to start has stored nothing.
        if not report_undelivered(agent) and agent.has_stopped:
            click.echo(f"gpuagent: stored {place or f'by the collector at {agent.config.collector}'}", err=True)
    raise_failure(agent)


def find_platform(config: "AgentConfig", given: Sequence[str]) -> str:
    """Return the platform and the node of the runs of a command, which a running agent has settled unless `given`."""
    from gpuagent.agent_config import find_place
    from gpuagent.service import find_agent_of

    spool, node_uuid = find_place(config)
    platform = config.platform
    if "platform" not in given and (client := find_agent_of(spool, node_uuid, None)):
        with contextlib.closing(client):
            is_beside = "collector" in given and _other_collector(client, config)
            platform = status.platform if (status := client.status()) and not is_beside else platform
    return f"{platform} on {node_uuid}"


def _gpus_of(run_id: str, status: "StatusResponse | None") -> Sequence["GpuNow"]:
    return [gpu for gpu in status.gpus if run_id in gpu.run_ids] if status else []


def given_to_agent(ctx: click.Context) -> list[str]:
    """Return the agent's own options on the command line; the environment counts for the collector and the platform."""
    sources = click.core.ParameterSource
    return [
        name
        for name in _AGENT_S_OWN
        if ctx.get_parameter_source(name) is sources.COMMANDLINE
        or (name in ("collector", "platform") and ctx.get_parameter_source(name) is sources.ENVIRONMENT)
    ]


def report_undelivered(agent: "Agent") -> bool:
    """Print how many messages are lost or wait, and why; return whether there are any."""
    if agent.lost:
        click.echo(f"gpuagent: messages lost: {agent.lost}; cannot write to {agent.spool_directory}", err=True)
    if agent.undelivered:
        later = "; once that is solved, `gpuagent start` or the next run on this node delivers them"
        if agent.config.beside:
            later = f"; run `collector import {agent.spool_directory}` on the collector's machine"
        trouble = agent.uplink.trouble and f"the collector reports: {agent.uplink.trouble}"
        reason = agent.uplink.last_error or trouble or f"{agent.config.collector} did not accept the data in time"
        # The uplink has printed the remedy already.
        waiting = f"{agent.undelivered} messages wait in {agent.spool_directory}: {reason.partition('; ')[0]}"
        click.echo(f"gpuagent: {waiting}{later}", err=True)
    return bool(agent.lost or agent.undelivered)


def raise_failure(agent: "Agent") -> None:
    """Raise GpuAgentError if the agent ended itself."""
    if agent.failure:
        raise GpuAgentError(f"the agent ended itself: {agent.failure}")


def _count_waiting(client: "AgentClient") -> int:
    # An agent that has ended delivered what it could.
    status = client.status()
    return status.waiting_messages if status else 0


def _check_options(client: "AgentClient", config: "AgentConfig", given: Sequence[str]) -> None:
    """Refuse a platform that the running agent does not have, and print which options it ignores."""
    status = client.status()
    if status and status.gpu_fault:
        click.echo(f"gpuagent: {status.gpu_fault}", err=True)
    if "platform" in given and status and status.platform != config.platform:
        process_id = client.read_process_id()
        stop = f"stop it (process {process_id})" if process_id else "stop it"
        raise MisuseError(
            f"the agent that runs on this node samples as platform {status.platform!r}, not {config.platform!r}; "
            f"{stop}, or omit --platform and GPUAGENT_PLATFORM"
        )
    if status and _other_collector(client, config):
        where = f"{status.collector}, not {config.collector}; --collector sends a run elsewhere"
        click.echo(f"gpuagent: this node's agent is running already and delivers to {where}", err=True)
    settled = ["platform", "collector", *(["spool"] if config.spool and client.uses(config.spool) else [])]
    ignored = [f"--{name.removesuffix('_hz').replace('_', '-')}" for name in given if name not in settled]
    for warning in status.warnings if status else ():
        click.echo(f"gpuagent: {warning}", err=True)
    if ignored:
        click.echo(f"gpuagent: this node's agent is running already and ignores {', '.join(ignored)}", err=True)


def _other_collector(client: "AgentClient", config: "AgentConfig") -> str | None:
    """Return the collector of a running agent if `config` names another; None: it does not, or the agent is ending.

    Several addresses are those of one fleet: one in common is enough.
    """
    status = client.status()
    if status is None or not _addresses(status.collector).isdisjoint(_addresses(config.collector)):
        return None
    return status.collector


def _addresses(collector: str) -> set[str]:
    return {re.sub("^localhost:", "127.0.0.1:", one) for one in collector.split(",")}


def _agent_or_client(config: "AgentConfig", spool: Path, node_uuid: str) -> "Agent | AgentClient":
    """Return a client of the running agent of the spool or the node, or a new agent if none runs.

    Raises:
        MisuseError: the spool's agent is of another node than the one that `config` names.
        GpuAgentError: an agent that holds the spool or the node does not listen, even after a wait.
    """
    from gpuagent.agent import Agent
    from gpuagent.service import find_agent_of

    deadline = time.monotonic() + _AGENT_STARTS_SECONDS
    what = "the agent that uses this spool or node: it starts, or stops; Ctrl-C ends the wait"
    with waiting_for("gpuagent", what):
        while True:
            client = find_agent_of(spool, node_uuid, config.beside)
            if client:
                _check_node(client, config, spool, node_uuid)
                return client
            try:
                return Agent(config)
            except LockedError:
                # Another agent has the node but does not listen: it is starting or stopping.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def _check_node(client: "AgentClient", config: "AgentConfig", spool: Path, node_uuid: str) -> None:
    status = client.status()
    if config.node_id and status and status.node_uuid not in ("", node_uuid):
        client.close()
        raise MisuseError(
            f"the agent that uses the spool {spool} is of another node, {status.node_uuid}; "
            "omit --node-id, or give another --spool"
        )
