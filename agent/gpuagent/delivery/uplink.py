"""The connection to the collector: its settings, and the sending of the spool's backlog, again after any failure."""

import asyncio
import logging
import random
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path

import grpc

from gpuagent.clock import Clock
from gpuagent.delivery.spool import Spool
from gpuagent.delivery.stream import UNKNOWN_MACHINE, Orders, Stream, Tally, Warnings
from gpuagent.facts import Machine
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_common.backoff import Backoff
from gpuagent_common.channel import Options, open_aio_channel, why_unreachable
from gpuagent_common.connection import MAX_MESSAGE_BYTES, TlsFiles, bearer, read_token
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.telemetry_service_pb2_grpc import TelemetryServiceStub


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

    def explain(self, error: grpc.aio.AioRpcError, *, is_welcomed: bool = True) -> str | None:
        """Return the cause of a failed call and its remedy; None: cancelled, or a lost refusal, which comes again.

        It may open a connection. Only an agent that was not welcomed can have been refused.
        """
        code, details = error.code(), error.details() or ""
        match code:
            case grpc.StatusCode.CANCELLED:
                return None
            case grpc.StatusCode.INTERNAL if details == _LOST_ANSWER and not is_welcomed:
                return None
            case grpc.StatusCode.UNAUTHENTICATED:
                join = f"collector tokens create agent --node NODE | gpuagent join {self.address}"
                refused = f"the collector at {self.address} does not accept the token in {self.token_file}"
                return f"{refused}; give another by --token-file, or join: {join}"
            case grpc.StatusCode.PERMISSION_DENIED:
                return f"the collector at {self.address} refuses: {details}"
            case grpc.StatusCode.UNAVAILABLE:
                if reason := why_unreachable(self.address, self.tls):
                    return f"no connection to the collector at {self.address}: {reason}"
                if "connect" in details.lower():
                    return f"no collector answers at {self.address}; start one: collector serve --listen {self.address}"
                return f"the collector at {self.address} is not ready: {details}"
        return f"the collector at {self.address} answers: {details} ({code.name})"


_LOG = logging.getLogger(__name__)

# What gRPC reports in place of a refusal that arrives while the agent still speaks.
_LOST_ANSWER = "Internal error from Core"
_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 30.0

_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.enable_http_proxy", 0),
    # A name may have several addresses, a collector at each.
    ("grpc.service_config", '{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}'),
    # Our own loop reconnects; a channel lives as long as its stream.
    ("grpc.enable_retries", 0),
    # Bandwidth probes wake the agent often, and one message a second needs none.
    ("grpc.http2.bdp_probe", 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The wait of a stopping agent for the collector to store its backlog.

    Attributes:
        seconds: limit of the wait; a collector that shares its store commits every 10 s, and a busy one takes longer.
        through_failures: whether to wait even while the collector does not answer, for agents whose disk is deleted
            with them.
    """

    seconds: float = 30.0
    through_failures: bool = False


class Uplink:
    """A sender of the spool to one collector at a time. Runs in an event loop; safe to notify from other threads."""

    def __init__(
        self,
        *,
        access: Access,
        spool: Spool,
        buffer: RecordBuffer,
        clock: Clock,
        orders: Orders,
        hostname: str,
        machine: Machine = UNKNOWN_MACHINE,
    ) -> None:
        addresses = access.address.split(",")
        # Each attempt takes the next collector, from a random first one: agents that start together spread out.
        self._accesses = cycle([replace(access, address=each) for each in random.sample(addresses, len(addresses))])
        self._spool = spool
        self._stream: Stream | None = None
        self._changed = threading.Condition()
        self._attempts = 0
        self.tally = Tally()
        # What is wrong with this node, as the last stream found it.
        self.warnings = Warnings()
        self._open_stream = partial(
            Stream,
            spool=spool,
            buffer=buffer,
            clock=clock,
            orders=orders,
            hostname=hostname,
            machine=machine,
            tally=self.tally,
            warnings=self.warnings,
        )
        # Whether a collector has welcomed the agent on the present stream.
        self.connected = False
        # Cause of the missing connection; None: connected, or not tried yet.
        self.last_error: str | None = None
        # Why the connected collector could store nothing when it last said so, in its words; empty: it could.
        self.trouble = ""
        # Whether the last thing that was logged is an error of the connection.
        self._is_lost = False

    async def run(self) -> None:
        """Connect, deliver and reconnect until cancelled; unacknowledged messages stay in the spool."""
        # Jitter: agents that lost their collector together do not all return at once.
        backoff = Backoff(first_seconds=_FIRST_RETRY_SECONDS, longest_seconds=_LAST_RETRY_SECONDS, jitter=0.5)
        while True:
            if await self._deliver():
                backoff.reset()
            await asyncio.sleep(backoff.next_delay_seconds())

    def notify(self) -> None:
        """Send new messages of the spool."""
        if stream := self._stream:
            stream.notify()

    def wait_until_delivered(self, delivery: Delivery) -> bool:
        """Wait until the spool is empty or the connection fails; return whether the spool is empty."""
        with self._changed:
            if delivery.through_failures:
                self._changed.wait_for(lambda: self._spool.waiting() == 0, delivery.seconds)
            else:
                deadline = time.monotonic() + delivery.seconds
                self._changed.wait_for(lambda: self._attempts or self.connected, delivery.seconds)
                left = max(0.0, deadline - time.monotonic())
                self._changed.wait_for(lambda: not self.connected or self._spool.waiting() == 0, left)
        return self._spool.waiting() == 0

    async def _deliver(self) -> bool:
        """Run one stream to its end; return whether the collector acknowledged any message."""
        self._stream = stream = self._open_stream()
        # What an earlier collector, or connection, had trouble with may be over; this one says so itself.
        self.trouble = ""
        access = next(self._accesses)
        error: str | None = None
        try:
            metadata = access.metadata()
            async with access.channel(_CHANNEL_OPTIONS) as channel:
                call = TelemetryServiceStub(channel).Connect(stream.requests(), metadata=metadata)
                try:
                    async for message in call:
                        await stream.take(message)
                        if stream.welcomed and not self.connected:
                            self._set_state(connected=True, error=None)
                            if self._is_lost:
                                self._is_lost = False
                                _LOG.warning("connected to the collector at %s", access.address)
                        if stream.trouble is not None and stream.trouble != self.trouble:
                            self.trouble = stream.trouble
                            _LOG.warning("the collector reports: %s", self.trouble or "it stores again")
                        with self._changed:
                            self._changed.notify_all()
                except grpc.aio.AioRpcError:
                    if not stream.failure:
                        raise
            if stream.failure:
                raise stream.failure
        except grpc.aio.AioRpcError as call_error:
            error = await asyncio.to_thread(access.explain, call_error, is_welcomed=bool(stream.welcomed))
        except GpuAgentError as own_error:
            error = str(own_error)
        finally:
            self._stream = None
            stream.end()
            self._set_state(connected=False, error=error)
        return stream.acknowledged

    def _set_state(self, *, connected: bool, error: str | None) -> None:
        if error and error != self.last_error:
            _LOG.warning("%s", error)
            self._is_lost = True
        with self._changed:
            self._attempts += not connected
            self.tally.failures += error is not None
            self.connected, self.last_error = connected, error
            self._changed.notify_all()
