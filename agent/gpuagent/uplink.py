"""Keeps a connection to the collector: whatever breaks, it comes back and the spool's rest is sent."""

import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path

import grpc

from gpuagent.clock import Clock
from gpuagent.errors import GpuAgentError
from gpuagent.rows import RecordBuffer
from gpuagent.spool import Spool
from gpuagent.stream import Orders, Stream
from gpuagent_proto.connection import MAX_MESSAGE_BYTES, TokenError, bearer, read_token
from gpuagent_proto.v1.telemetry_service_pb2_grpc import TelemetryServiceStub

_LOG = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 30.0

_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.enable_http_proxy", 0),
    # Reconnecting is our own loop's work; a channel lives as long as its stream.
    ("grpc.enable_retries", 0),
    # Measuring the connection's bandwidth wakes the agent often, and one message a second needs none of it.
    ("grpc.http2.bdp_probe", 0),
)


class Uplink:
    """Delivers the spool to one collector. Runs in a thread of its own."""

    def __init__(
        self,
        *,
        address: str,
        token_file: Path,
        spool: Spool,
        buffer: RecordBuffer,
        clock: Clock,
        orders: Orders,
    ) -> None:
        self.address = address
        self._token_file = token_file
        self._spool = spool
        self._buffer = buffer
        self._clock = clock
        self._orders = orders
        self._changed = threading.Condition()
        self._cancel: Callable[[], object] = lambda: None
        self._attempts = 0
        self.connected = False
        """Whether the collector has welcomed us on the present stream."""
        self.last_error: str | None = None
        """Why there is no connection; None while there is one, or before the first attempt."""

    def run(self, stop: threading.Event) -> None:
        """Connect, deliver and reconnect until `stop` is set and `close` was called."""
        retry_seconds = _FIRST_RETRY_SECONDS
        while not stop.is_set():
            delivered = self._deliver(stop)
            retry_seconds = _FIRST_RETRY_SECONDS if delivered else min(2 * retry_seconds, _LAST_RETRY_SECONDS)
            # Jitter: agents that lost one collector together do not return together.
            stop.wait(retry_seconds * random.uniform(0.5, 1.0))  # noqa: S311

    def notify(self) -> None:
        """Say that there is something new to send."""
        with self._changed:
            self._changed.notify_all()

    def wait_until_delivered(self, timeout_seconds: float) -> bool:
        """Wait until nothing waits in the spool, or a connection fails; return whether all was delivered."""
        with self._changed:
            self._changed.wait_for(lambda: self._attempts or self.connected, timeout_seconds)
            self._changed.wait_for(lambda: not self.connected or self._spool.waiting() == 0, timeout_seconds)
        return self._spool.waiting() == 0

    def close(self) -> None:
        """End the stream at once; what is not acknowledged stays in the spool."""
        self._cancel()

    def _deliver(self, stop: threading.Event) -> bool:
        """Hold one stream to its end; return whether the collector took anything."""
        stream = Stream(
            spool=self._spool, buffer=self._buffer, clock=self._clock, orders=self._orders, changed=self._changed
        )
        error: str | None = None
        try:
            self._hold(stream, stop)
        except (TokenError, FileNotFoundError) as token_error:
            error = self._explain_token(token_error)
        except grpc.RpcError as call_error:
            error = self._explain(call_error)
        except GpuAgentError as own_error:
            error = str(own_error)
        finally:
            stream.end()
            self._set_state(connected=False, error=error)
        return stream.acknowledged

    def _hold(self, stream: Stream, stop: threading.Event) -> None:
        metadata = bearer(read_token(self._token_file))
        with grpc.insecure_channel(self.address, options=_CHANNEL_OPTIONS) as channel:
            call = TelemetryServiceStub(channel).Connect(stream.requests(), metadata=metadata)
            self._cancel = call.cancel
            if stop.is_set():
                return  # `close` came before there was anything to cancel
            for message in call:
                stream.take(message)
                if not self.connected and stream.welcomed:
                    self._set_state(connected=True, error=None)

    def _set_state(self, *, connected: bool, error: str | None) -> None:
        if error and error != self.last_error:
            _LOG.warning("%s", error)
        with self._changed:
            self._attempts += not connected
            self.connected, self.last_error = connected, error
            self._changed.notify_all()

    def _explain_token(self, error: Exception) -> str:
        if isinstance(error, TokenError):
            return str(error)
        return f"there is no token file {self._token_file}; copy the collector's, or name it by --token-file"

    def _explain(self, error: grpc.RpcError) -> str | None:
        code, details = error.code(), error.details() or ""
        if code == grpc.StatusCode.UNAVAILABLE:
            if "connect" not in details.lower():
                return f"the collector at {self.address} is not ready: {details}"
            return f"no collector answers at {self.address}; start one: collector serve --listen {self.address}"
        if code == grpc.StatusCode.UNAUTHENTICATED:
            return f"the collector at {self.address} does not accept the token in {self._token_file}"
        if code == grpc.StatusCode.CANCELLED:
            return None
        return f"the collector at {self.address} says: {details} ({code.name})"
