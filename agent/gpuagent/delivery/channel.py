"""Connection settings of the collector, and explanations of failed calls."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from gpuagent_common.channel import Options, open_aio_channel, why_unreachable
from gpuagent_common.connection import TlsFiles, bearer, read_token
from gpuagent_common.errors import GpuAgentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Address and credentials of a collector; the files are read again for every connection.

    Attributes:
        address: HOST:PORT; several joined by commas for an agent, of which each attempt takes one.
    """

    address: str
    token_file: Path
    tls: TlsFiles | None = None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call. Raises GpuAgentError where the token is missing or cannot be used."""
        try:
            return bearer(read_token(self.token_file))
        except FileNotFoundError:
            raise GpuAgentError(
                f"no token file {self.token_file}; run `collector serve` here, or: gpuagent join HOST:PORT"
            ) from None

    def channel(self, options: Options) -> grpc.aio.Channel:
        """Return a channel to the collector; nothing is sent yet. Raises TlsError as `open_aio_channel` does."""
        return open_aio_channel(self.address, self.tls, options)

    def explain(self, error: grpc.aio.AioRpcError) -> str | None:
        """Return the cause of a failed call and its remedy; None: the call was cancelled. It may open a connection."""
        code, details = error.code(), error.details() or ""
        match code:
            case grpc.StatusCode.CANCELLED:
                return None
            case grpc.StatusCode.UNAUTHENTICATED:
                return f"the collector at {self.address} does not accept the token in {self.token_file}"
            case grpc.StatusCode.PERMISSION_DENIED:
                return f"the collector at {self.address} refuses: {details}"
            case grpc.StatusCode.UNAVAILABLE:
                if reason := why_unreachable(self.address, self.tls):
                    return f"no connection to the collector at {self.address}: {reason}"
                if "connect" in details.lower():
                    return f"no collector answers at {self.address}; start one: collector serve --listen {self.address}"
                return f"the collector at {self.address} is not ready: {details}"
        return f"the collector at {self.address} answers: {details} ({code.name})"
