"""The telemetry service, to which agents deliver."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

import grpc
from google.protobuf.message import DecodeError

from gpuagent_collector import __version__
from gpuagent_collector.errors import ProtocolError, StoreError
from gpuagent_collector.ingest.ingest import Ingest
from gpuagent_collector.ingest.messages import Message, Outcome, Verdict
from gpuagent_collector.server.agents import Admission, AgentRegistry, AgentStream
from gpuagent_collector.server.auth import ENDED, caller
from gpuagent_collector.server.throttle import Pace
from gpuagent_collector.trust import audit
from gpuagent_common.keys import key
from gpuagent_proto.v1 import PROTOCOL_VERSION, telemetry_service_pb2, telemetry_service_pb2_grpc
from gpuagent_proto.v1 import telemetry_pb2 as wire

# Of a message in parts. The longest, a hello with 10,000 sessions, has less than 1 MiB.
MAX_PARTS_BYTES = 2 * 1024 * 1024

# Tags of the fields whose content is bytes or text: `batch` and `output`.
_LARGE = tuple(
    bytes([wire.AgentMessage.DESCRIPTOR.fields_by_name[name].number << 3 | 2]) for name in ("batch", "output")
)


def parse_agent_message(content: bytes) -> wire.AgentMessage:
    """Return the message in `content`.

    Raises ProtocolError: it is no AgentMessage, or a large one of anything but one batch or one piece of output.
    """
    if len(content) > MAX_PARTS_BYTES and not (content.startswith(_LARGE) and _is_one_field(content)):
        raise ProtocolError(f"a message of {len(content):,} bytes that is neither a batch nor output")
    try:
        return wire.AgentMessage.FromString(content)
    except DecodeError as error:
        raise ProtocolError("not an AgentMessage") from error


def _is_one_field(content: bytes) -> bool:
    """Return whether a tag of one byte and a length are followed by exactly so many bytes."""
    length, position = 0, 1
    for position in range(1, 6):
        length |= (content[position] & 0x7F) << 7 * (position - 1)
        if content[position] < 0x80:
            break
    return position + 1 + length == len(content)


_LOG = logging.getLogger(__name__)

# As many as a genuine agent accepts at once; each may have to be cancelled.
MAX_RUNS_A_LAUNCH = 10_000

Context = grpc.aio.ServicerContext[wire.AgentMessage, wire.CollectorMessage]


@dataclass(eq=False)
class TelemetryServicer(telemetry_service_pb2_grpc.TelemetryServiceServicer):
    """A service that takes batches, and acknowledges them after their commit."""

    ingest: Ingest
    registry: AgentRegistry
    admission: Admission
    flush_interval_millis: int
    hello_seconds: float

    def __post_init__(self) -> None:
        limit_bytes = self.ingest.settings.queue_limit_bytes
        self._pace = Pace(base_millis=self.flush_interval_millis, limit_bytes=limit_bytes)
        self.ingest.on_trouble = self._send_pace

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the handlers of the service's calls, which parse messages in bounded memory."""
        connect = grpc.stream_stream_rpc_method_handler(
            self.Connect, parse_agent_message, wire.CollectorMessage.SerializeToString
        )
        (service,) = telemetry_service_pb2.DESCRIPTOR.services_by_name.values()
        return grpc.method_handlers_generic_handler(service.full_name, {"Connect": connect})

    async def Connect(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[wire.AgentMessage], context: Context
    ) -> AsyncIterator[wire.CollectorMessage]:
        """Serve one agent's stream."""
        hello, holder = await self._hello(request_iterator, context), caller()
        refusal = await self.admission.refusal(hello, holder)
        if refusal is not None:
            audit.refused(who=holder.name, peer=context.peer(), method="connect", node=hello.node_uuid[:100])
            await context.abort(*refusal)
        stream = AgentStream(hello, holder, self.registry.share(key(hello.node_uuid)))
        self.registry.add(stream)
        _LOG.info("the agent of node %s has connected", stream.hello.node_uuid)
        try:
            yield await self._welcome(stream, context)
            if self.ingest.trouble:
                yield self._make_pace()
            if stream.ending is None:
                stream.reader = asyncio.create_task(self._read(stream, request_iterator))
            async for message in stream.outbox:
                yield message
        finally:
            if stream.reader is not None:
                stream.reader.cancel()
            self.registry.remove(stream)
            _LOG.info("the agent of node %s has gone", stream.hello.node_uuid)
        if stream.ending is not None:
            await context.abort(*stream.ending)

    def note_question(self) -> None:
        """Have the agents of idle nodes flush more often for a while, because somebody watches."""
        self._pace.note_question()
        self._set_pace()

    async def _hello(self, requests: AsyncIterator[wire.AgentMessage], context: Context) -> wire.Hello:
        try:
            first = await asyncio.wait_for(anext(aiter(requests), None), self.hello_seconds)
        except asyncio.TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello within {self.hello_seconds:g} s")
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if first is None or not first.HasField("hello"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of a stream must be a hello")
        if first.hello.protocol_version != PROTOCOL_VERSION:
            older = "agent" if first.hello.protocol_version < PROTOCOL_VERSION else "collector"
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the agent ({first.hello.agent_version}) uses protocol version {first.hello.protocol_version}, "
                f"the collector ({__version__}) version {PROTOCOL_VERSION}; upgrade gpuagent on the {older}'s side",
            )
        return first.hello

    async def _welcome(self, stream: AgentStream, context: Context) -> wire.CollectorMessage:
        # The marks include messages of the session's older stream that were in the queue: an agent whose spool was
        # restored must not give a pending number to other rows.
        try:
            marks = await self.ingest.settled_marks(stream.nodes)
        except StoreError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return wire.CollectorMessage(
            welcome=wire.Welcome(
                protocol_version=PROTOCOL_VERSION,
                collector_version=__version__,
                marks=[wire.Mark(session_id=session_id, number=number) for session_id, number in marks.items()],
                flush_interval_millis=self._pace.current_millis,
                idle_flush_interval_millis=self._pace.idle_millis,
            )
        )

    async def _read(self, stream: AgentStream, requests: AsyncIterator[wire.AgentMessage]) -> None:
        try:
            async for message in requests:
                if not self.registry.validity.is_valid(stream.holder):
                    stream.end(grpc.StatusCode.UNAUTHENTICATED, ENDED)
                    return
                await self._take(stream, message)
                await stream.outbox.room()
                if delay_seconds := stream.share.throttle.delay_seconds():
                    await asyncio.sleep(delay_seconds)
            await stream.settled()
            stream.outbox.close()
        except ProtocolError as error:
            stream.end(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except StoreError as error:
            stream.end(grpc.StatusCode.UNAVAILABLE, str(error))

    async def _take(self, stream: AgentStream, message: wire.AgentMessage) -> None:
        if message.HasField("batch"):
            await self._take_batch(stream, message.batch)
        elif message.HasField("clock_probe"):
            probed = message.clock_probe.agent_unix_nano
            clock = wire.ClockReply(agent_unix_nano=probed, collector_unix_nano=time.time_ns())
            stream.outbox.push(wire.CollectorMessage(clock_reply=clock))
        elif message.HasField("launch_reply"):
            _take_launch_reply(stream, message)
        elif message.HasField("output"):
            stream.answer(message.output.request_id, message)
        elif message.HasField("experiment_reply"):
            answer = message.experiment_reply
            if not stream.answer(answer.request_id, message) and answer.has_begun:  # after the question had timed out
                order = wire.ExperimentOrder(request_id=uuid.uuid4().hex, cancel=answer.state.name)
                stream.outbox.push(wire.CollectorMessage(experiment=order))
        elif message.HasField("hello"):
            raise ProtocolError("a second hello on one stream")

    async def _take_batch(self, stream: AgentStream, batch: wire.Batch) -> None:
        node_id = stream.nodes.get(batch.session_id)
        if node_id is None:
            raise ProtocolError(f"a batch of session {batch.session_id}, which the hello did not name")
        if batch.number == 0:
            raise ProtocolError("a batch with number 0; they begin with 1")
        message = Message(session_id=batch.session_id, node_id=node_id, number=batch.number, records=batch.records)
        await stream.share.take(len(message.records))
        try:
            future = await self.ingest.submit(message)
        except BaseException:
            stream.share.give_back(len(message.records))
            raise
        stream.in_flight.add(future)
        future.add_done_callback(partial(self._settle, stream, message))
        self._set_pace()

    def _settle(self, stream: AgentStream, message: Message, future: "asyncio.Future[Outcome]") -> None:
        stream.in_flight.discard(future)
        stream.share.give_back(len(message.records))
        if future.cancelled():
            stream.end(
                grpc.StatusCode.UNAVAILABLE,
                "the collector cannot write its store" if self.ingest.failed.done() else "the collector is stopping",
            )
            return
        if future.result().verdict is Verdict.DISOWNED:
            stream.end(grpc.StatusCode.ABORTED, "another collector has taken over")
            return
        if future.result().verdict is Verdict.REJECTED:
            rejection = wire.Rejection(
                session_id=message.session_id, number=message.number, reason=future.result().reason or ""
            )
            stream.outbox.push(wire.CollectorMessage(rejection=rejection))
        stream.outbox.acknowledge(message.session_id, message.number)
        self._set_pace()

    def _set_pace(self) -> None:
        """Send all agents new flush intervals when they change."""
        if self._pace.change(self.ingest.queued_bytes, self.ingest.lag_seconds):
            self._send_pace()

    def _send_pace(self) -> None:
        """Send all agents the flush intervals, and why nothing can be stored."""
        for stream in self.registry.streams():
            stream.outbox.push(self._make_pace())

    def _make_pace(self) -> wire.CollectorMessage:
        pace = wire.Pace(
            flush_interval_millis=self._pace.current_millis,
            idle_flush_interval_millis=self._pace.idle_millis,
            trouble=self.ingest.trouble,
        )
        return wire.CollectorMessage(pace=pace)


def _take_launch_reply(stream: AgentStream, message: wire.AgentMessage) -> None:
    reply = message.launch_reply
    if len(reply.run_ids) > MAX_RUNS_A_LAUNCH:
        raise ProtocolError(f"a launch of more than {MAX_RUNS_A_LAUNCH:,} runs")
    if stream.answer(reply.launch_id, message):
        stream.launched.update(reply.run_ids)
        return
    # The caller was answered that nothing runs, or has gone: so nothing may run.
    for run_id in reply.run_ids:
        stream.outbox.push(wire.CollectorMessage(cancel=wire.CancelRun(run_id=run_id)))
