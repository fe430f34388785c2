"""Several collector processes on one lake, and agents that go from one to another: nothing is lost, nothing twice."""

import signal
from itertools import count
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from gpuagent.delivery.spool import Entry, Spool
from gpuagent.sampling.rows import encode_records
from gpuagent_collector.store import Store, StoreSpec
from tests.support.postgres import Postgres
from tests.support.servers import Node, until

pytestmark = [pytest.mark.slow, pytest.mark.needs("psql")]

MESSAGES = 400
ROWS_A_MESSAGE = 5


class Fleet:
    """Collectors on one lake, and the agents of nodes that know all of them."""

    def __init__(self, node: Node, lake: StoreSpec) -> None:
        self._node = node
        self._store = ("--store", str(lake))
        self._data = ("--data", str(lake.data))
        self._lake = lake
        self._logs = count(1)
        self.addresses: list[str] = []

    def serve(self, *addresses: str) -> list["Popen[str]"]:
        """Start collectors at once; agents that are started from then on know them."""
        options = ("--commit-interval", "0.2", "--connection-age", "3", *self._store, *self._data)
        logs = [f"collector{next(self._logs)}.log" for _ in addresses]
        processes = [
            self._node.start("collector", "serve", "--listen", address, *options, log=log)
            for address, log in zip(addresses, logs, strict=True)
        ]
        self.addresses = [
            until(lambda log=log, process=process: self._address(log, process), "a collector")  # type: ignore[misc]
            for log, process in zip(logs, processes, strict=True)
        ]
        return processes

    def _address(self, log: str, process: "Popen[str]") -> str | None:
        text = (self._node.folder / log).read_text()
        assert process.poll() is None, text
        return next((word for word in text.split() if word.startswith("127.0.0.1:")), None) if "\n" in text else None

    def start_agent(self, name: str) -> "Popen[str]":
        folder = self._node.folder / name
        folder.mkdir()
        fill_spool(folder / "spool", name)
        self._node.environment |= {
            "GPUAGENT_COLLECTOR": ",".join(self.addresses),
            "GPUAGENT_SPOOL_DIR": str(folder / "spool"),
            "GPUAGENT_RUNTIME_DIR": str(folder),
        }
        return self._node.start("gpuagent", "start", "--rate", "1", log=f"{name}.log")

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with Store.open(self._lake, read_only=True) as store, store.connect() as connection:
            return connection.execute(sql).fetchall()

    def owners(self) -> int:
        ((owners,),) = self.ask("SELECT count(DISTINCT collector) FROM session_owners WHERE session_id <> 0")
        return int(owners)

    def stored(self) -> tuple[int, int]:
        columns = "count(*), count(DISTINCT (session_id, load_1m))"
        ((rows, different),) = self.ask(f"SELECT {columns} FROM host_samples WHERE time < '1971-01-01'")
        return rows, different


def fill_spool(folder: Path, name: str) -> None:
    folder.mkdir(mode=0o700)
    spool = Spool(folder / "spool.sqlite", node_uuid=f"the node {name} of before", limit_bytes=1 << 30)
    spool.append(
        [Entry(records=records(number), droppable=True, from_unix_nano=1, to_unix_nano=2) for number in range(MESSAGES)]
    )
    spool.close()


def records(number: int) -> bytes:
    rows = range(number * ROWS_A_MESSAGE, (number + 1) * ROWS_A_MESSAGE)
    return encode_records({"host_samples": [{"time": 1, "load_1m": float(row)} for row in rows]})


def test_collectors_killed_and_a_catalog_restarted_in_mid_load_lose_and_double_nothing(
    node: Node, lake: StoreSpec, server: Postgres
) -> None:
    fleet = Fleet(node, lake)
    first, second, third = fleet.serve("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0")
    agents = [fleet.start_agent(name) for name in ("a", "b")]
    every = len(agents) * MESSAGES * ROWS_A_MESSAGE
    until(lambda: fleet.stored()[0] > 0, "the first rows")
    node.stop(first, signal.SIGKILL)
    server.stop()
    server.start()
    node.stop(second, signal.SIGKILL)
    fleet.serve(fleet.addresses[0])
    until(lambda: fleet.stored()[0] >= every, "every row")
    node.stop(third, signal.SIGKILL)  # whoever wrote first is gone now
    until(lambda: fleet.owners() > 1, "an owner who took over")
    for agent in agents:
        node.stop(agent)
    assert fleet.stored() == (every, every)
    live = "session_id, time, count(*) FROM host_samples WHERE time > '2000-01-01' GROUP BY ALL HAVING count(*) > 1"
    assert fleet.ask(f"SELECT {live}") == []
