"""`gpuagent start`: sample this node and stream to a collector until stopped."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from gpuagent.cli.completing import workloads
from gpuagent.cli.delivery import tell_undelivered
from gpuagent.cli.options import agent_config, agent_options, run_options
from gpuagent.cli.spec import run_spec
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.service_manager import notify, watchdog_seconds

if TYPE_CHECKING:
    from gpuagent.agent import Agent

METRICS_VARIABLE = "GPUAGENT_METRICS"


@click.command(
    epilog="""\b
Examples:
  gpuagent start --platform satori --label rack=7
  gpuagent start --run mnist --param epochs=3 --repeat 7
  gpuagent run mnist                 in another terminal: this agent runs it""",
)
@click.option(
    "--run",
    "workload",
    metavar="WORKLOAD",
    shell_complete=workloads,
    help="Run this at once, and go on sampling after it.",
)
@run_options
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    envvar=METRICS_VARIABLE,
    help="Serve the agent's own /metrics for Prometheus here, and /healthz and /readyz for probes, without a token "
    f"(or {METRICS_VARIABLE}).  [default: nowhere]",
)
@click.option("--allow-commands", is_flag=True, help="Let the collector launch any command here, not only workloads.")
@agent_options
def command(workload: str | None, allow_commands: bool, metrics: str | None, **options: Any) -> None:
    """Sample this node and stream to a collector until stopped.

    Takes work from `gpuagent run` of the same user and from the collector. Without a collector it samples on; what it
    samples waits in the spool. Ctrl-C stops it after what it has is stored.
    """
    from gpuagent.agent import Agent

    config = agent_config(options, allow_commands=allow_commands)
    if not workload and any(options[name] for name in ("parameters", "beside", "cpus", "memory", "changes")):
        raise MisuseError("--param, --with, --cpus, --memory and --change are for --run WORKLOAD")
    agent = Agent(config)
    plans = agent.planner.plan(run_spec(workload, (), (), labels={}, **options)) if workload else []
    with _own_metrics(metrics, agent), agent:
        signalled = _wake_on_signals()
        click.echo(
            f"gpuagent: sampling {agent.node_uuid} as platform {config.platform!r} at {config.rate_hz:g} Hz "
            f"for the collector at {config.collector}; Ctrl-C stops",
            err=True,
        )
        agent.runner.submit(plans)
        notify("READY=1")
        _wait(signalled, agent)
        notify("STOPPING=1")
        click.echo("gpuagent: stopping", err=True)
    tell_undelivered(agent)
    if agent.failure:
        raise GpuAgentError(f"the agent ended itself: {agent.failure}")


@contextmanager
def _own_metrics(address: str | None, agent: "Agent") -> Iterator[None]:
    """Serve the agent's own metrics where that is asked for. Otherwise nothing of it is even imported."""
    if address is None:
        yield
        return
    from gpuagent.metrics_http.own_server import serving

    with serving(address, agent) as place:
        click.echo(f"gpuagent: its own metrics: http://{place}/metrics", err=True)
        yield


def _wait(signalled: int, agent: "Agent") -> None:
    """Wait for the end; systemd's watchdog hears of the agent for as long as its pipeline moves."""
    flushes = -1
    while not select.select([signalled], [], [], watchdog_seconds())[0]:
        if agent.flushes != flushes:
            notify("WATCHDOG=1")
        flushes = agent.flushes


def _wake_on_signals() -> int:
    """Return a file descriptor that becomes readable at the first signal; the second one ends the process at once.

    Waiting for a lock would not end where the kernel hands a signal to another thread than the main one, as it does
    when a suspended process is continued to be ended: Python's handlers run in the main thread, and do not wake it.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: signal.signal(number, signal.SIG_DFL))
    return readable
