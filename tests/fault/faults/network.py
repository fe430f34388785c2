"""What networks do to connections."""

import time
from random import Random

from tests.fault.proxy import Conditions, Way
from tests.fault.site import Site
from tests.support.servers import until

_GOOD = Conditions()


def cut(site: Site, random: Random) -> None:
    for _ in range(random.randint(1, 3)):
        time.sleep(random.uniform(0.0, 0.2))
        site.proxy.cut()


def refuse(site: Site, random: Random) -> None:
    site.proxy.refuse()
    site.proxy.cut()
    time.sleep(random.uniform(0.1, 0.8))
    site.proxy.listen()


def stall(site: Site, random: Random) -> None:
    site.proxy.impose(Conditions(stalled=set(random.choice([[Way.UP], [Way.DOWN], list(Way)]))))
    time.sleep(random.uniform(0.2, 1.0))
    site.proxy.impose(_GOOD)


def lose_acknowledgements(site: Site, random: Random) -> None:
    """The collector stores, and the agent never hears of it: everything on its way is sent again."""
    site.proxy.impose(Conditions(stalled={Way.DOWN}))
    time.sleep(random.uniform(0.1, 0.6))
    site.proxy.cut()


def delay(site: Site, random: Random) -> None:
    site.proxy.impose(Conditions(delay_seconds=random.uniform(0.01, 0.1)))
    time.sleep(random.uniform(0.3, 0.8))
    site.proxy.impose(_GOOD)


def throttle(site: Site, random: Random) -> None:
    """The connection carries less than is made, until it breaks or is good again."""
    site.proxy.impose(Conditions(bytes_per_second=random.uniform(500, 50_000)))
    time.sleep(random.uniform(0.3, 0.8))
    if random.random() < 0.5:
        site.proxy.cut()
    site.proxy.impose(_GOOD)


def half_close(site: Site, random: Random) -> None:
    site.proxy.half_close(random.choice(list(Way)))
    time.sleep(random.uniform(0.0, 0.4))


def reset_in_mid_frame(site: Site, random: Random) -> None:
    site.proxy.impose(Conditions(reset_after_bytes={random.choice(list(Way)): random.randint(1, 2000)}))
    until(lambda: site.proxy.connections() <= 1, "the reset")


def strand(site: Site, random: Random) -> None:
    """The agent's side breaks and it comes back, while the collector gets the rest of the old connection late."""
    site.proxy.strand()
    time.sleep(random.uniform(0.0, 1.0))
    site.proxy.impose(_GOOD)
