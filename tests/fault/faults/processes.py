"""Processes killed, suspended, and away."""

import signal
import time
from random import Random

import psutil

from tests.fault.site import Site

_SMALL_BYTES = 64 * 1024


def kill_collector(site: Site, random: Random) -> None:
    """Kill the collector at any moment."""
    time.sleep(random.uniform(0.0, 0.5))
    site.kill_collector()
    site.start_collector()


def kill_agent(site: Site, random: Random) -> None:
    """Kill the agent's side at any moment."""
    time.sleep(random.uniform(0.0, 0.5))
    site.kill_generator(site.generators[0])


def kill_both(site: Site, random: Random) -> None:
    """Kill both, in any order."""
    time.sleep(random.uniform(0.0, 0.5))
    if random.random() < 0.5:
        site.kill_collector()
        site.kill_generator(site.generators[0])
    else:
        site.stop_generator(site.generators[0], signal.SIGKILL)
        site.kill_collector()
        site.start_generator()
    site.start_collector()


def suspend_collector(site: Site, random: Random) -> None:
    """The collector's machine sleeps."""
    _suspend(site.collector.pid, random)


def suspend_agent(site: Site, random: Random) -> None:
    """The agent's machine sleeps."""
    _suspend(site.generators[0].process.pid, random)


def _suspend(pid: int, random: Random) -> None:
    process = psutil.Process(pid)
    time.sleep(random.uniform(0.0, 0.3))
    process.suspend()
    time.sleep(random.uniform(0.2, 1.5))
    process.resume()


def collector_away_for_long(site: Site, random: Random) -> None:
    """The collector is away until the spool, a small one, has been filled more than once."""
    site.stop_generator(site.generators[0])
    site.kill_collector()
    generator = site.start_generator(limit_bytes=_SMALL_BYTES)
    time.sleep(random.uniform(3.0, 6.0))
    site.start_collector()
    site.settle()
    site.stop_generator(generator)
    site.start_generator()
