"""Keeps a connection to the collector: whatever breaks, it comes back and the spool's rest is sent."""

import asyncio
import logging
import random
import threading
from dataclasses import dataclass, replace
from itertools import cycle

import grpc

from gpuagent.clock import Clock
from gpuagent.delivery.connecting import Access
from gpuagent.delivery.spool import Spool
from gpuagent.delivery.stream import Orders, Stream, Tally
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_common.connection import MAX_MESSAGE_BYTES
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.telemetry_service_pb2_grpc import TelemetryServiceStub

_LOG = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 30.0

_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.enable_http_proxy", 0),
    # A name may have several addresses, a collector at each.
    ("grpc.service_config", '{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}'),
    # Reconnecting is our own loop's work; a channel lives as long as its stream.
    ("grpc.enable_retries", 0),
    # Measuring the connection's bandwidth wakes the agent often, and one message a second needs none of it.
    ("grpc.http2.bdp_probe", 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How a stopping agent waits for the collector to have stored everything.

    Attributes:
        seconds: how long; a collector that shares its store commits every 10 s.
        through_failures: whether to wait on while the collector does not answer: what is not delivered now never is,
            for the spool's disk goes with the agent.
    """

    seconds: float = 15.0
    through_failures: bool = False


class Uplink:
    """Delivers the spool to one collector at a time. Runs in an event loop; other threads look at it and notify it."""

    def __init__(
        self,
        *,
        access: Access,
        spool: Spool,
        buffer: RecordBuffer,
        clock: Clock,
        orders: Orders,
        hostname: str,
    ) -> None:
        addresses = access.address.split(",")
        # Each attempt goes to another collector; agents that start together do not begin with the same one.
        self._accesses = cycle([replace(access, address=each) for each in random.sample(addresses, len(addresses))])
        self._spool = spool
        self._buffer = buffer
        self._clock = clock
        self._orders = orders
        self._hostname = hostname
        self._stream: Stream | None = None
        self._changed = threading.Condition()
        self._attempts = 0
        self.tally = Tally()
        # Whether the collector has welcomed us on the present stream.
        self.connected = False
        # Why there is no connection; None while there is one, or before the first attempt.
        self.last_error: str | None = None

    async def run(self) -> None:
        """Connect, deliver and reconnect until cancelled; what is not acknowledged then stays in the spool."""
        retry_seconds = _FIRST_RETRY_SECONDS
        while True:
            delivered = await self._deliver()
            retry_seconds = _FIRST_RETRY_SECONDS if delivered else min(2 * retry_seconds, _LAST_RETRY_SECONDS)
            # Jitter: agents that lost one collector together do not return together.
            await asyncio.sleep(retry_seconds * random.uniform(0.5, 1.0))  # noqa: S311

    def notify(self) -> None:
        """Say that there is something new to send."""
        stream = self._stream
        if stream:
            stream.notify()

    def wait_until_delivered(self, delivery: Delivery) -> bool:
        """Wait until nothing waits in the spool, or a connection fails; return whether all was delivered."""
        with self._changed:
            if delivery.through_failures:
                self._changed.wait_for(lambda: self._spool.waiting() == 0, delivery.seconds)
            else:
                self._changed.wait_for(lambda: self._attempts or self.connected, delivery.seconds)
                self._changed.wait_for(lambda: not self.connected or self._spool.waiting() == 0, delivery.seconds)
        return self._spool.waiting() == 0

    async def _deliver(self) -> bool:
        """Hold one stream to its end; return whether the collector took anything."""
        stream = Stream(
            spool=self._spool,
            buffer=self._buffer,
            clock=self._clock,
            orders=self._orders,
            hostname=self._hostname,
            tally=self.tally,
        )
        self._stream = stream
        access = next(self._accesses)
        error: str | None = None
        try:
            await self._hold(stream, access)
        except grpc.aio.AioRpcError as call_error:
            error = await asyncio.to_thread(access.explain, call_error)
        except GpuAgentError as own_error:
            error = str(own_error)
        finally:
            self._stream = None
            stream.end()
            self._set_state(connected=False, error=error)
        return stream.acknowledged

    async def _hold(self, stream: Stream, access: Access) -> None:
        metadata = access.metadata()
        async with access.channel(_CHANNEL_OPTIONS) as channel:
            call = TelemetryServiceStub(channel).Connect(stream.requests(), metadata=metadata)
            try:
                async for message in call:
                    await stream.take(message)
                    self._note_taken(stream)
            except grpc.aio.AioRpcError:
                if not stream.failure:
                    raise
        if stream.failure:
            raise stream.failure

    def _note_taken(self, stream: Stream) -> None:
        if stream.welcomed and not self.connected:
            self._set_state(connected=True, error=None)
        with self._changed:
            self._changed.notify_all()

    def _set_state(self, *, connected: bool, error: str | None) -> None:
        if error and error != self.last_error:
            _LOG.warning("%s", error)
        with self._changed:
            self._attempts += not connected
            self.tally.failures += error is not None
            self.connected, self.last_error = connected, error
            self._changed.notify_all()
