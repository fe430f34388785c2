"""Every fault that is tried."""

from tests.fault.agent_site import AgentSite
from tests.fault.faults import clocks, damage, disks, identities, network, processes, runs, versions, writes
from tests.fault.faults.fault import Fault, fault
from tests.fault.site import Site

FAULTS: tuple[Fault, ...] = (
    fault(processes.kill_collector, Site),
    fault(processes.kill_agent, Site),
    fault(processes.kill_both, Site),
    fault(runs.kill_agent_in_mid_run, AgentSite),
    fault(runs.kill_workload, AgentSite),
    fault(runs.kill_collector_in_mid_run, AgentSite),
    fault(writes.agent_killed_at_a_write, Site),
    fault(writes.collector_killed_at_a_write, Site),
    fault(processes.suspend_collector, Site),
    fault(processes.suspend_agent, Site),
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
    fault(disks.spool_disk_full, disks.SpoolOnSmallDisk),
    fault(disks.store_disk_full, disks.StoreOnSmallDisk),
    fault(damage.spool_damaged, Site, gives_up=True),
    fault(damage.store_damaged, damage.StoreCopies, gives_up=True),
    fault(clocks.clock_stepped, Site),
    fault(clocks.collector_clock_stepped, clocks.SiteWithClock),
    fault(identities.two_agents_with_one_identity, Site),
    fault(identities.spool_cloned, Site),
    fault(identities.spool_restored, Site),
    fault(versions.collector_downgraded, Site),
)
