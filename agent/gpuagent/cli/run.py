"""`gpuagent run`: run a workload or any command, measured."""

import contextlib
import json
import os
import queue
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent.cli.delivery import tell_undelivered
from gpuagent.cli.options import agent_config, agent_options, run_options
from gpuagent.cli.spec import run_spec
from gpuagent.errors import GpuAgentError, LockedError, MisuseError

if TYPE_CHECKING:
    from gpuagent.agent import Agent, AgentConfig
    from gpuagent.service import AgentClient
    from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

_AGENT_S_OWN = ("platform", "collector", "token_file", "rate_hz", "spool", "per_core")
"""Options that belong to the agent, which one that runs already has settled."""

_AGENT_STARTS_SECONDS = 15.0
"""How long an agent that starts or stops may take to listen or to let go of the node."""


class _RunCommand(click.Command):
    """Keeps what stands behind `--` apart: that is a program of the user's, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            position = args.index("--")
            ctx.meta["program"] = args[position + 1 :]
            args = args[:position]
        return super().parse_args(ctx, args)


@click.command(
    cls=_RunCommand,
    context_settings={"ignore_unknown_options": True},
    options_metavar="[OPTIONS]",
    epilog="""\b
Examples:
  gpuagent run mnist --repeat 3
  gpuagent run mnist --batch-size 128 --with cpu-burn
  gpuagent run --platform laptop -- python train.py --lr 0.1""",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="WORKLOAD [--KEY VALUE]… | -- PROGRAM [ARGUMENT]…")
@run_options
@agent_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print each run and its results as JSON; its output goes to stderr."
)
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Run a workload or any command, measured.

    The node's running agent does it; when none runs, this command is the agent until the run has ended. Without a
    collector the samples wait in the spool, and the next agent on this node delivers them. The exit code is the
    workload's own. The program gets no standard input.
    """
    from gpuagent.cli.follow import Follower

    program = ctx.meta.get("program", [])
    if bool(words) == bool(program):
        raise MisuseError("give either a workload or `-- PROGRAM`; `gpuagent workloads` lists the workloads")
    config = agent_config(options, allow_commands=True)
    spec = run_spec(words[0] if words else None, program, words[1:], labels=config.labels, **options)
    follower = Follower(runs=spec.repeats, quiet_stdout=as_json)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with _running(config, spec, _given(ctx)) as updates:
        follower.follow(updates)
    if as_json:
        click.echo(json.dumps([run.as_json() for run in follower.runs], indent=2))
    return follower.exit_code


@contextlib.contextmanager
def _running(config: "AgentConfig", spec: "RunSpec", given: Sequence[str]) -> Iterator[Iterator["RunUpdate"]]:
    """Have the runs executed by the node's agent, or by one of our own; yield what becomes of them."""
    from gpuagent import locations
    from gpuagent.agent import Agent, find_place
    from gpuagent.service import AgentClient, socket_path
    from gpuagent_proto.keys import key

    _, node_uuid = find_place(config)
    socket = socket_path(locations.runtime_directory(os.environ), key(node_uuid))
    agent: Agent | AgentClient = _agent_or_client(config, socket)
    if isinstance(agent, AgentClient):
        with contextlib.closing(agent):
            _check_options(agent, config, given)
            yield agent.submit(spec)
        return
    plans = agent.planner.plan(spec)
    try:
        with agent:
            updates: queue.SimpleQueue[RunUpdate] = queue.SimpleQueue()
            agent.runner.submit(plans, updates.put)
            yield _until_ended(updates, len(plans))
    finally:
        if not tell_undelivered(agent):
            click.echo(f"gpuagent: stored by the collector at {agent.config.collector}", err=True)
    if agent.failure:
        raise GpuAgentError(f"the agent ended itself: {agent.failure}")


def _until_ended(updates: "queue.SimpleQueue[RunUpdate]", runs: int) -> Iterator["RunUpdate"]:
    from gpuagent.service import has_ended

    while runs:
        update = updates.get()
        runs -= has_ended(update)
        yield update


def _given(ctx: click.Context) -> list[str]:
    """Return which of an agent's own options stand on the command line."""
    on_command_line = click.core.ParameterSource.COMMANDLINE
    return [name for name in _AGENT_S_OWN if ctx.get_parameter_source(name) is on_command_line]


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
