"""The processes of a load run: a collector that serves TLS, and senders, some of them behind a slow network."""

import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.load.agents import NodeAccess, Tally
from benchmarks.load.plan import Kind, SimulatedNode
from benchmarks.load.sender import Sender, Task
from gpuagent_collector.trust.private_files import write_private
from gpuagent_collector.trust.serving import CertificateFolder
from gpuagent_collector.trust.tokens import Scope, TokenFile
from gpuagent_common.connection import TlsFiles
from tests.fault.proxy import Conditions, FaultProxy
from tests.support.servers import Node

# Before each chunk of up to 16 KiB, either way: acknowledgements are read half a second late.
SLOW = Conditions(delay_seconds=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The resources of the collector's process up to a moment."""

    # Of the monotonic clock.
    at_seconds: float
    rss_mib: float
    # Since the process began.
    cpu_seconds: float
    # Open, connections included.
    files: int


class LoadSite:
    """A collector with a token for each node, and the processes that are its agents."""

    def __init__(self, folder: Path, *, memory_gib: float) -> None:
        self.node = Node(folder)
        certificates = CertificateFolder(path=folder / "tls")
        certificates.init(["127.0.0.1"])
        server = certificates.server
        self._options = [f"--tls-cert={server.certificate}", f"--tls-key={server.key}", f"--memory={memory_gib:g}"]
        self._tls = TlsFiles(ca=certificates.ca)
        self.collector = self.node.serve(options=self._options)
        self.address = self.node.environment["GPUAGENT_COLLECTOR"]
        self._slow_network = FaultProxy(self.address)
        self._senders: list[Sender] = []
        self._stalled: list[Sender] = []

    def connect(self, nodes: Sequence[SimulatedNode], *, processes: int, seed: int, flush_seconds: float) -> None:
        """Make a token for each node, and start the processes that are the nodes' agents."""
        self._make_tokens(nodes)
        for place, part in enumerate(_split(nodes, processes)):
            accesses = {each.index: self._access(each) for each in part}
            task = Task(nodes=part, accesses=accesses, seed=seed + place, flush_seconds=flush_seconds)
            self._senders.append(Sender(task))
            if part[0].kind is Kind.STALLED:
                self._stalled.append(self._senders[-1])

    def _make_tokens(self, nodes: Iterable[SimulatedNode]) -> None:
        """Make what `collector tokens create agent --node NAME` makes, for each node."""
        tokens = TokenFile.beside(Path(self.node.environment["GPUAGENT_TOKEN_FILE"]))
        for each in nodes:
            secret = tokens.create(Scope.AGENT, each.hostname, node=each.hostname)
            write_private(self._token_file(each), f"{secret}\n".encode())

    def _token_file(self, node: SimulatedNode) -> Path:
        return self.node.folder / "tokens" / node.hostname

    def _access(self, node: SimulatedNode) -> NodeAccess:
        address = self._slow_network.address if node.kind is Kind.SLOW else self.address
        return NodeAccess(address=address, token_file=self._token_file(node), tls=self._tls)

    def disconnected(self) -> int:
        """Return how many agents are not connected; those of processes that are stopped are not asked."""
        return sum(sender.disconnected() for sender in self._senders if not sender.suspended)

    def begin(self) -> None:
        """Have all agents begin to sample."""
        for sender in self._senders:
            sender.begin()

    def end(self) -> None:
        """Have them sample no more."""
        for sender in self._senders:
            sender.end()

    def waiting(self) -> int:
        """Return how many messages are not acknowledged."""
        return sum(sender.waiting() for sender in self._senders)

    def tallies(self) -> dict[int, Tally]:
        """Return what became of everything, by the node's index, and end the agents."""
        return {index: tally for sender in self._senders for index, tally in sender.report().items()}

    def slow_down(self, slow: bool) -> None:
        """Make the connections of slow agents slow, or good again."""
        self._slow_network.impose(SLOW if slow else Conditions())

    def stall(self, stalled: bool) -> None:
        """Stop the processes of stalled agents, or let them go on."""
        for sender in self._stalled:
            sender.suspend(stalled)

    def restart_collector(self) -> None:
        """Kill the collector, and start another on the same store at the same address."""
        self.node.stop(self.collector, signal.SIGKILL)
        self.collector = self.node.serve(self.address, self._options)

    def reading(self) -> Reading:
        """Return what the collector uses now."""
        process = psutil.Process(self.collector.pid)
        with process.oneshot():
            times = process.cpu_times()
            return Reading(
                at_seconds=time.monotonic(),
                rss_mib=process.memory_info().rss / 2**20,
                cpu_seconds=times.user + times.system,
                files=process.num_fds(),
            )

    def check(self) -> None:
        """Fail when a process has ended that should run."""
        if self.collector.poll() is not None:
            raise RuntimeError(f"the collector ended: {(self.node.folder / 'collector.log').read_text()[-2000:]}")
        if any(sender.process.exitcode is not None for sender in self._senders):
            raise RuntimeError("a process of agents ended")

    def stop_collector(self) -> None:
        """Have the collector commit what it has, and end."""
        self.node.stop(self.collector)

    def close(self) -> None:
        """End every process."""
        for sender in self._senders:
            sender.kill()
        self._slow_network.close()
        self.node.close()


def _split(nodes: Sequence[SimulatedNode], processes: int) -> Sequence[Sequence[SimulatedNode]]:
    """Return the agents of each process; those that are to be stalled have one of their own."""
    stalled = [each for each in nodes if each.kind is Kind.STALLED]
    others = [each for each in nodes if each.kind is not Kind.STALLED]
    return [part for part in (stalled, *(others[place::processes] for place in range(processes))) if part]
