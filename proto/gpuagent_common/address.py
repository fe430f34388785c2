"""Where the server listens, checked before gRPC is asked, so that a mistake is told in words."""

import ipaddress
import socket
from dataclasses import dataclass

from gpuagent_common.errors import GpuAgentError, MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host and port to listen on; port 0 means any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `HOST:PORT`; an IPv6 host stands in brackets.

        Raises:
            MisuseError: it is neither.
        """
        host, separator, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not separator or not host or not port.isdecimal() or int(port) > 65535:
            raise MisuseError(f"{text!r} is no address to listen on; write HOST:PORT, as in 127.0.0.1:50051")
        return cls(host=host, port=int(port))

    def is_loopback(self) -> bool:
        """Tell whether only this machine can reach it. A name other than localhost counts as reachable."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def at(self, port: int) -> "Address":
        """Return the same host with another port."""
        return Address(host=self.host, port=port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_free(address: Address, *, option: str = "--listen") -> None:
    """Try the address, which `option` gave.

    Raises:
        GpuAgentError: it is in use, is not of this machine, or is not allowed.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As gRPC does: a port that only waits for old connections to time out is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen()
    except OSError as error:
        raise GpuAgentError(
            f"cannot listen on {address}: {error.strerror}; choose another address with {option}"
        ) from error
