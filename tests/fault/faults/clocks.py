"""Clocks that are set."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from random import Random

from tests.fault.generator import CLOCK_FILE
from tests.fault.site import Site
from tests.support.servers import until

_DAY_SECONDS = 86_400
_STEPS = "SELECT count(*) AS steps FROM gaps WHERE reason = 'clock_step'"

_PROGRAM = (sys.executable, "-m", "tests.fault.collector")
_KEPT = ("--keep-raw", "1h", "--keep-seconds", "2h", "--keep", "3h")


class SiteWithClock(Site):
    """A site whose collector has a clock that can be set, and removes what is three hours old."""

    def serve(self, listen: str = "127.0.0.1:0") -> "subprocess.Popen[str]":
        return self.node.serve(listen, _KEPT, _PROGRAM)


def clock_stepped(site: Site, random: Random) -> None:
    """The agent's wall clock is set forward or back, by a second to a day; that is told as a gap."""
    told = _told(site)
    _step(site, random, (1, 60, _DAY_SECONDS))
    site.generators[0].process.send_signal(signal.SIGUSR1)
    until(lambda: _told(site) > told, "the gap")


def collector_clock_stepped(site: Site, random: Random) -> None:
    """The collector's wall clock is set forward or back, by a minute to a month; it serves on, or is started again."""
    _step(site, random, (60, _DAY_SECONDS, 30 * _DAY_SECONDS))
    if random.random() < 0.5:
        site.collector.send_signal(signal.SIGUSR1)
    else:
        site.kill_collector()
        site.start_collector()


def _step(site: Site, random: Random, about_seconds: Sequence[int]) -> None:
    """Say by how much the clock is to be set: one of these and up to half of it more, forward or back."""
    seconds = random.choice([-1, 1]) * random.choice(about_seconds) * random.uniform(1.0, 1.5)
    (site.node.folder / CLOCK_FILE).write_text(f"{seconds}")


def _told(site: Site) -> int:
    with site.reading() as reader:
        (row,) = reader.sql(_STEPS).to_pylist()
    return int(row["steps"])
