"""Faults while the real agent runs a workload."""

import signal
from random import Random

from tests.fault.agent_site import AgentSite
from tests.support.servers import until


def kill_agent_in_mid_run(site: AgentSite, random: Random) -> None:
    """Kill the agent; its workload ends with it, and the next agent tells how far that came."""
    run = site.start_run(random.randrange(100))
    site.kill_agent()
    run.wait(60)
    site.start_agent()


def kill_workload(site: AgentSite, random: Random) -> None:
    """Kill the workload's process."""
    run = site.start_run(random.randrange(100))
    site.workload().kill()
    until(lambda: run.poll() is not None, "the run's end")


def kill_collector_in_mid_run(site: AgentSite, random: Random) -> None:
    """Kill the collector, and end the run before it is back or after."""
    run = site.start_run(random.randrange(100))
    site.node.stop(site.collector, signal.SIGKILL)
    if random.random() < 0.5:
        run.send_signal(signal.SIGINT)
    site.collector = site.node.serve(site.address)
    if run.poll() is None:
        run.send_signal(signal.SIGINT)
    run.wait(60)
