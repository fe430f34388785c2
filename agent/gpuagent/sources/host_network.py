"""The traffic of the node's network interfaces, from /proc/net/dev. `ip -s link` shows the same."""

from collections.abc import Iterable

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.files import exists, open_needed, read_parsed
from gpuagent.sources.support.rates import Rates, total


def parse_net_dev(text: str) -> dict[str, tuple[int, int]]:
    """Return (bytes received, bytes sent) of each interface; the heading and incomplete lines are left out.

    Raises:
        ValueError: this is not a /proc/net/dev.
    """
    interfaces: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        # An alias such as eth0:1 has a colon of its own.
        name, colon, rest = line.rpartition(":")
        numbers = rest.split()
        if colon and len(numbers) > 8:
            interfaces[name.strip()] = (int(numbers[0]), int(numbers[8]))
    return interfaces


class HostNetwork:
    """Bytes a second on all interfaces but loopback, in the network namespace of the first visible process.

    That is the agent's own, except in a pod that shares the host's processes and not its network. There
    psutil.net_io_counters() would return the pod's network.
    """

    name = "host_network"
    lane = Lane.FAST
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        # Where other users' processes are hidden, the first one is.
        first = context.proc / "1/net/dev"
        self._file = open_needed(first if exists(first) else context.proc / "net/dev")
        self._received: Rates[str] = Rates()
        self._sent: Rates[str] = Rates()

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the rates since the reading before; an interface counts from its second reading on."""
        interfaces = read_parsed(self._file, parse_net_dev)
        interfaces.pop("lo", None)
        received = self._received.per_second({name: received for name, (received, _) in interfaces.items()}, now)
        sent = self._sent.per_second({name: sent for name, (_, sent) in interfaces.items()}, now)
        values = {"network_receive_bytes_per_second": total(received), "network_send_bytes_per_second": total(sent)}
        yield Reading(table="host_samples", values=values)

    def close(self) -> None:
        """Close /proc/net/dev."""
        self._file.close()
