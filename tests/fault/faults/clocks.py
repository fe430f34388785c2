"""Clocks that are set."""

import signal
from random import Random

from tests.fault.generator import CLOCK_FILE
from tests.fault.site import Site
from tests.support.servers import until

_DAY_SECONDS = 86_400
_STEPS = "SELECT count(*) AS steps FROM gaps WHERE reason = 'clock_step'"


def clock_stepped(site: Site, random: Random) -> None:
    """The agent's wall clock is set forward or back, by a second to a day; that is told as a gap."""
    told = _told(site)
    seconds = random.choice([-1, 1]) * random.choice([1, 60, _DAY_SECONDS]) * random.uniform(1.0, 1.5)
    (site.node.folder / CLOCK_FILE).write_text(f"{seconds}")
    site.generators[0].process.send_signal(signal.SIGUSR1)
    until(lambda: _told(site) > told, "the gap")


def _told(site: Site) -> int:
    with site.reading() as reader:
        (row,) = reader.sql(_STEPS).to_pylist()
    return int(row["steps"])
