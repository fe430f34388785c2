"""How the agent gets to its collector, and in words why it does not."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from gpuagent_common.channel import Options, open_aio_channel, why_unreachable
from gpuagent_common.connection import TlsError, TlsFiles, TokenError, bearer, read_token
from gpuagent_common.errors import GpuAgentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the collector is, and what it is shown; files are read anew for every connection.

    Attributes:
        address: HOST:PORT; of an agent's collectors several, joined by commas, of which each attempt takes one.
        token_file: what says who we are.
        tls: what the collector's certificate must come from; None: the connection is not encrypted.
    """

    address: str
    token_file: Path
    tls: TlsFiles | None = None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what a call carries.

        Raises:
            GpuAgentError: there is no token, or it cannot be used.
        """
        try:
            return bearer(read_token(self.token_file))
        except FileNotFoundError:
            raise GpuAgentError(
                f"there is no token file {self.token_file}; join a collector: gpuagent join; or give --token-file"
            ) from None
        except TokenError as error:
            raise GpuAgentError(str(error)) from error

    def channel(self, options: Options) -> grpc.aio.Channel:
        """Return a channel to the collector; nothing is sent yet.

        Raises:
            GpuAgentError: a certificate or key cannot be used.
        """
        try:
            return open_aio_channel(self.address, self.tls, options)
        except TlsError as error:
            raise GpuAgentError(str(error)) from error

    def explain(self, error: grpc.aio.AioRpcError) -> str | None:
        """Return why a call failed, and what to do; None: it was cancelled. It may make a connection of its own."""
        code, details = error.code(), error.details() or ""
        if code == grpc.StatusCode.UNAVAILABLE:
            return self._explain_unavailable(details)
        if code == grpc.StatusCode.UNAUTHENTICATED:
            return f"the collector at {self.address} does not accept the token in {self.token_file}"
        if code == grpc.StatusCode.PERMISSION_DENIED:
            return f"the collector at {self.address} refuses: {details}"
        if code == grpc.StatusCode.CANCELLED:
            return None
        return f"the collector at {self.address} says: {details} ({code.name})"

    def _explain_unavailable(self, details: str) -> str:
        reason = why_unreachable(self.address, self.tls)
        if reason:
            return f"no connection to the collector at {self.address}: {reason}"
        if "connect" in details.lower():
            return f"no collector answers at {self.address}; start one: collector serve --listen {self.address}"
        return f"the collector at {self.address} is not ready: {details}"
