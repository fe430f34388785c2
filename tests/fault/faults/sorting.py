"""A collector that is killed, or whose disk is full, while it sorts old samples and agents deliver new ones."""

import subprocess
import time
from random import Random

import duckdb

from gpuagent_collector.store import Store
from tests.fault.faults.damage import StoreOnSmallDisk
from tests.fault.invariants import Findings
from tests.fault.site import Site
from tests.support.servers import until

# A day is a slice.
DAYS, ROWS_A_DAY = 30, 4_000
# Most slices that are done before something happens.
_MOST_SLICES = 8

# In the order of arrival: each GPU in turn.
_OLD = f"""
INSERT INTO gpu_samples (session_id, node_id, device_id, time, utilization_percent, power_watts)
SELECT 1, 1, i % 8, TIMESTAMP '2026-01-01' + to_milliseconds(i * 86400000 // {ROWS_A_DAY}), i % 101, i
FROM range({DAYS * ROWS_A_DAY}) r(i)
"""
_DIGEST = "SELECT count(*) AS rows, count(DISTINCT power_watts) AS different FROM gpu_samples s"
# Days that are sorted.
_DONE = "SELECT date_diff('day', TIMESTAMP '2026-01-01', max(until)) AS days FROM sortings"


class SortingSite(Site):
    """A site with old samples, all of which every collector is to sort anew."""

    def prepare(self) -> None:
        with Store.open(str(self.node.store)) as store, store.connect() as connection:
            connection.execute(_OLD)

    def serve(self, listen: str = "127.0.0.1:0") -> "subprocess.Popen[str]":
        never = [f"--{name}=never" for name in ("keep", "keep-raw", "keep-seconds")]
        return self.node.serve(listen, never)

    def sort_anew(self, slices: int) -> None:
        """Let a new collector sort everything, and return when it has done so many slices."""
        self.kill_collector()
        with duckdb.connect(str(self.node.store)) as connection:
            connection.execute("DELETE FROM sortings")
        self.start_collector()
        with self.reading() as reader:
            until(lambda: (reader.sql(_DONE)["days"][0].as_py() or 0) >= slices, f"{slices} slices")

    def findings(self) -> Findings:
        with self.reading() as reader:
            (old,) = reader.sql(_DIGEST).to_pylist()
        expected = DAYS * ROWS_A_DAY
        assert (old["rows"], old["different"]) == (expected, expected), f"{old} of {expected} old samples"
        return super().findings()


class SortingOnSmallDisk(SortingSite, StoreOnSmallDisk):
    """The same, on a disk that can be filled."""

    def prepare(self) -> None:
        StoreOnSmallDisk.prepare(self)
        SortingSite.prepare(self)


def kill_collector_in_mid_sort(site: SortingSite, random: Random) -> None:
    site.sort_anew(random.randrange(_MOST_SLICES))
    time.sleep(random.uniform(0.0, 0.3))
    site.kill_collector()
    site.start_collector()


def store_disk_full_in_mid_sort(site: SortingOnSmallDisk, random: Random) -> None:
    """The disk is full for a while; now and then the collector is killed then."""
    site.sort_anew(random.randrange(_MOST_SLICES))
    with site.filled():
        time.sleep(random.uniform(0.2, 1.5))
        if random.random() < 0.3:
            site.kill_collector()
    if site.collector.poll() is not None:
        site.start_collector()
