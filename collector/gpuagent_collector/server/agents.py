"""The agents that have a stream open."""

import asyncio
from collections.abc import Iterable, Sequence
from weakref import WeakValueDictionary

import grpc
from prometheus_client import Gauge

from gpuagent_collector.ingest.messages import Outcome
from gpuagent_collector.ingest.presence import Presence
from gpuagent_collector.server.auth import ENDED
from gpuagent_collector.server.outbox import Outbox
from gpuagent_collector.server.throttle import Share
from gpuagent_collector.server.validity import Validity
from gpuagent_collector.trust.caller import Caller
from gpuagent_common.keys import key
from gpuagent_proto.v1 import telemetry_pb2 as wire


class AgentStream:
    """One open stream: who is at its other end, what is on the way, and how it ends."""

    def __init__(self, hello: wire.Hello, holder: Caller, share: Share) -> None:
        self.hello = hello
        self.holder = holder
        self.node_id = key(hello.node_uuid)
        # The agent's own session, which tells it from others on its node.
        self.session_uuid = hello.sessions[-1].session_uuid if hello.sessions else ""
        # Session → the node it ran on.
        self.nodes = {key(session.session_uuid): key(session.node_uuid) for session in hello.sessions}
        self.outbox = Outbox()
        # Runs that the agent took on this stream; the store may not know them yet.
        self.launched: set[str] = set()
        # What the agent was asked → its answer, while it is awaited.
        self._questions: dict[str, asyncio.Future[wire.AgentMessage | None]] = {}
        self._has_gone = False
        # Messages that wait for their commit.
        self.in_flight: set[asyncio.Future[Outcome]] = set()
        # The node's, which its other streams have as well.
        self.share = share
        self.reader: asyncio.Task[None] | None = None
        # Why the stream ends, where it is not the agent that ends it.
        self.ending: tuple[grpc.StatusCode, str] | None = None

    def end(self, code: grpc.StatusCode, reason: str) -> None:
        """Take nothing more, say what waits to be said, and close with this status."""
        if self.ending is None:
            self.ending = (code, reason)
        if self.reader is not None:
            self.reader.cancel()
        self.outbox.close()

    async def settled(self) -> None:
        """Wait until everything that was taken from the agent is answered."""
        if self.in_flight:
            await asyncio.wait(self.in_flight)

    async def ask(self, question_id: str, question: wire.CollectorMessage, seconds: float) -> wire.AgentMessage | None:
        """Ask the agent, and return what it answers; None when it goes away first.

        Raises:
            asyncio.TimeoutError: it does not answer within so many seconds.
        """
        if self._has_gone:
            return None
        answer = self._questions[question_id] = asyncio.get_running_loop().create_future()
        self.outbox.push(question)
        try:
            return await asyncio.wait_for(answer, seconds)
        finally:
            del self._questions[question_id]

    def answer(self, question_id: str, message: wire.AgentMessage) -> bool:
        """Take an answer of the agent; return whether anybody still waits for it."""
        question = self._questions.get(question_id)
        if question is None or question.done():
            return False
        question.set_result(message)
        return True

    def give_up_questions(self) -> None:
        """Answer for an agent that has gone."""
        self._has_gone = True
        for answer in self._questions.values():
            if not answer.done():
                answer.set_result(None)


class AgentRegistry:
    """All open streams. A session has one: a new stream ends the one before."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self.validity = Validity()
        self._streams: set[AgentStream] = set()
        self._by_session: dict[int, AgentStream] = {}
        # A share lives as long as a stream of its node, or a message of one that has ended: reconnecting gains nothing.
        self._shares: WeakValueDictionary[int, Share] = WeakValueDictionary()
        # How many streams are open, as a metric.
        self.connected = Gauge("gpuagent_agents_connected", "Agents that have a stream open.", registry=None)
        self.connected.set_function(lambda: len(self._streams))

    def add(self, stream: AgentStream) -> None:
        """Take in a stream, and end those that its agent had before."""
        for older in {self._by_session[session_id] for session_id in stream.nodes if session_id in self._by_session}:
            older.end(grpc.StatusCode.ABORTED, "a newer stream of the same session has taken over")
        self._streams.add(stream)
        self._by_session |= dict.fromkeys(stream.nodes, stream)
        self._presence.arrived(stream.nodes)

    def remove(self, stream: AgentStream) -> None:
        """Forget a stream."""
        self._streams.discard(stream)
        gone = [session_id for session_id in stream.nodes if self._by_session.get(session_id) is stream]
        for session_id in gone:
            del self._by_session[session_id]
        self._presence.left(gone)
        stream.give_up_questions()

    def share(self, node_id: int) -> Share:
        """Return what the streams of a node have together."""
        share = self._shares.get(node_id)
        if share is None:
            share = self._shares[node_id] = Share()
        return share

    def streams(self) -> Sequence[AgentStream]:
        """Return the open streams."""
        return tuple(self._streams)

    def on_nodes(self, node_ids: Iterable[int]) -> Sequence[AgentStream]:
        """Return the streams of the agents on these nodes."""
        wanted = set(node_ids)
        return [stream for stream in self._streams if stream.node_id in wanted]

    def end_revoked(self) -> None:
        """End the streams whose token has expired or was revoked."""
        for stream in self.streams():
            if not self.validity.is_valid(stream.holder):
                stream.end(grpc.StatusCode.UNAUTHENTICATED, ENDED)

    async def drain(self) -> None:
        """End every stream after what was taken from it is committed and acknowledged."""
        await asyncio.gather(*(self._drain(stream) for stream in self.streams()))

    async def _drain(self, stream: AgentStream) -> None:
        if stream.reader is not None:
            stream.reader.cancel()
        await stream.settled()
        stream.end(grpc.StatusCode.UNAVAILABLE, "the collector is stopping")
