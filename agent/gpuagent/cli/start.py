"""`gpuagent start`: sample this node until stopped."""

import gc
import os
import select
import signal
from contextlib import ExitStack
from typing import Any

import click

from gpuagent.cli.node_agent import raise_failure, report_undelivered
from gpuagent.cli.options import agent_config, agent_options, env_option
from gpuagent_common.service_manager import notify, watchdog_seconds
from gpuagent_common.text import counted

# How often it is looked whether the messages that waited are delivered.
_DELIVERY_SECONDS = 1.0


@click.command(
    epilog="""\b
Examples:
  gpuagent start --platform satori --label rack=7
  gpuagent run mnist                 in another terminal: this agent runs it"""
)
@env_option(
    "--metrics",
    "GPUAGENT_METRICS",
    metavar="HOST:PORT",
    help="Serve the agent's /metrics, /healthz and /readyz here, without a token.",
)
@click.option("--allow-commands", is_flag=True, help="Let the collector launch any command, not only workloads.")
@env_option(
    "--owners",
    "GPUAGENT_OWNERS",
    type=click.Choice(["full", "ids", "off"]),
    default="full",
    show_default=True,
    help="Record jobs and containers with names, by numbers, or not.",
)
@agent_options
def command(allow_commands: bool, metrics: str | None, **options: Any) -> None:
    """Sample this node until stopped.

    The agent streams samples to the collector, and takes work from it and from `gpuagent run` of the same user. Without
    a collector, samples wait in the spool. Ctrl-C stores the last samples and stops.
    """
    from gpuagent.agent import Agent

    config = agent_config(options, allow_commands=allow_commands)
    agent = Agent(config)
    # Of earlier agents and runs.
    waiting = agent.spool.waiting()
    with ExitStack() as stack:
        if metrics is not None:
            from gpuagent.metrics_http.own_server import serving

            place = stack.enter_context(serving(metrics, agent))
            click.echo(f"gpuagent: its own metrics: http://{place}/metrics", err=True)
        stack.enter_context(agent)
        # Waiting for a lock would not end where the kernel hands a signal to another thread than the main one, as it
        # does when a suspended process is continued to be ended. The second signal ends the process at once.
        signalled, writable = os.pipe()
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: signal.signal(number, signal.SIG_DFL))
        click.echo(
            f"gpuagent: sampling {agent.node_uuid} as platform {config.platform!r} at {config.rate_hz:g} Hz "
            f"for the collector at {config.collector}; Ctrl-C stops",
            err=True,
        )
        notify("READY=1")
        # What lives until the end is not looked through for cycles again: 20 to 30 ms each time.
        gc.collect()
        gc.freeze()
        # Keeps systemd's watchdog quiet for as long as the pipeline moves.
        flushes = -1
        while not select.select([signalled], [], [], _seconds_to_look(waiting))[0]:
            if agent.flushes != flushes:
                notify("WATCHDOG=1")
            flushes = agent.flushes
            # Once delivered, sessions of earlier agents are no longer in the spool.
            if waiting and agent.uplink.connected and len(agent.spool.sessions()) == 1:
                click.echo(f"gpuagent: {counted(waiting, 'waiting message')} delivered", err=True)
                waiting = 0
        notify("STOPPING=1")
        runs = len(agent.runner.active())
        cancels = f"cancelling {counted(runs, 'run')} and " * bool(runs)
        click.echo(f"gpuagent: {cancels}stopping, once the collector has the last messages", err=True)
    report_undelivered(agent)
    raise_failure(agent)


def _seconds_to_look(waiting: int) -> float | None:
    """Return the seconds until the agent is looked at again; None: only a signal ends the wait."""
    seconds = watchdog_seconds()
    if not waiting:
        return seconds
    return _DELIVERY_SECONDS if seconds is None else min(seconds, _DELIVERY_SECONDS)
