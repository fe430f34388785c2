"""Addresses to listen on, checked before gRPC for a readable error."""

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
        """Read `HOST:PORT`, an IPv6 host in brackets. Raises MisuseError where the text has another form."""
        host, separator, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not separator or not host or not port.isdecimal():
            raise MisuseError(f"{text!r} is not an address to listen on; write HOST:PORT, such as 127.0.0.1:50051")
        if int(port) > 65535:
            raise MisuseError(f"{text!r} is not an address to listen on; use a port from 0 to 65535")
        return cls(host=host, port=int(port))

    def is_loopback(self) -> bool:
        """Return whether only this machine can reach it. A name other than localhost counts as reachable."""
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
    """Check that this process can listen on an address; `option` names it in the error.

    Raises GpuAgentError: it is in use, on another machine, or not allowed.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As in gRPC: a port with only old connections in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen()
    except OSError as error:
        raise GpuAgentError(
            f"cannot listen on {address}: {error.strerror}; choose another address with {option}"
        ) from error
