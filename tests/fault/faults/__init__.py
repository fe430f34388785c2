"""Every fault that is tried."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

from tests.fault.agent_site import AgentSite
from tests.fault.faults import clocks, damage, network, processes, sorting
from tests.fault.invariants import Findings
from tests.fault.site import Site


class Trying(Protocol):
    def settle(self) -> float:
        """Wait until everything that is durable now is stored; return the seconds that took."""

    def findings(self) -> Findings:
        """Return what is lost or duplicated, of everything so far."""

    def leftovers(self) -> list[str]:
        """Return what should not be there."""

    def close(self) -> None:
        """End every process."""


Where = TypeVar("Where", bound=Trying)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happens, and is over when `happen` returns; nobody helps with what follows."""

    name: str
    open: Callable[[Path], Trying]
    # Takes what `open` returned, and the source of all chance.
    happen: Callable[..., None]
    # Whether messages may be missing, where a gap tells of it.
    gives_up: bool = False


def fault(happen: Callable[[Where, Random], None], open_: Callable[[Path], Where], *, gives_up: bool = False) -> Fault:
    """Return the fault that is named as the function is."""
    return Fault(name=happen.__name__.replace("_", "-"), open=open_, happen=happen, gives_up=gives_up)


FAULTS: tuple[Fault, ...] = (
    fault(processes.kill_collector, Site),
    fault(processes.kill_agent, Site),
    fault(processes.kill_both, Site),
    fault(processes.kill_agent_in_mid_run, AgentSite),
    fault(processes.kill_workload, AgentSite),
    fault(processes.kill_collector_in_mid_run, AgentSite),
    fault(processes.agent_killed_at_a_write, Site),
    fault(processes.collector_killed_at_a_write, Site),
    fault(processes.suspend_collector, Site),
    fault(processes.suspend_agent, Site),
    fault(processes.suspend_either_for_a_minute, Site),
    fault(processes.collector_away_for_long, Site, gives_up=True),
    fault(network.cut, Site),
    fault(network.refuse, Site),
    fault(network.stall, Site),
    fault(network.lose_acknowledgements, Site),
    fault(network.delay, Site),
    fault(network.throttle, Site),
    fault(network.half_close, Site),
    fault(network.reset_in_mid_frame, Site),
    fault(network.strand, Site),
    fault(damage.spool_disk_full, damage.SpoolOnSmallDisk),
    fault(damage.store_disk_full, damage.StoreOnSmallDisk),
    fault(damage.spool_damaged, Site, gives_up=True),
    fault(damage.store_damaged, damage.StoreCopies, gives_up=True),
    fault(clocks.clock_stepped, Site),
    fault(clocks.collector_clock_stepped, clocks.SiteWithClock),
    fault(damage.two_agents_with_one_identity, Site),
    fault(damage.spool_cloned, Site),
    fault(damage.spool_restored, Site),
    fault(processes.collector_downgraded, Site),
    fault(sorting.kill_collector_in_mid_sort, sorting.SortingSite),
    fault(sorting.store_disk_full_in_mid_sort, sorting.SortingOnSmallDisk),
)
