"""The agents that have a stream open."""

import asyncio
from collections.abc import Iterable, Sequence

import grpc
from prometheus_client import Gauge

from gpuagent_collector.ingest.messages import Outcome
from gpuagent_collector.ingest.presence import Presence
from gpuagent_collector.server.outbox import Outbox
from gpuagent_proto.keys import key
from gpuagent_proto.v1 import telemetry_pb2 as wire


class AgentStream:
    """One open stream: who is at its other end, what is on the way, and how it ends."""

    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.node_id = key(hello.node_uuid)
        self.nodes = {key(session.session_uuid): key(session.node_uuid) for session in hello.sessions}
        """Session → the node it ran on."""
        self.outbox = Outbox()
        self.launches: dict[str, asyncio.Future[wire.LaunchReply]] = {}
        """Launch → the agent's answer, while it is awaited."""
        self.in_flight: set[asyncio.Future[Outcome]] = set()
        """Messages that wait for their commit."""
        self.reader: asyncio.Task[None] | None = None
        self.ending: tuple[grpc.StatusCode, str] | None = None
        """Why the stream ends, where it is not the agent that ends it."""

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

    def forget_launches(self) -> None:
        """Answer for an agent that has gone."""
        for launch_id, answer in self.launches.items():
            if not answer.done():
                answer.set_result(wire.LaunchReply(launch_id=launch_id, refusal="the agent has disconnected"))


class AgentRegistry:
    """All open streams. A session has one: a new stream ends the one before."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._streams: set[AgentStream] = set()
        self._by_session: dict[int, AgentStream] = {}
        self.connected = Gauge("gpuagent_agents_connected", "Agents that have a stream open.", registry=None)
        """How many streams are open, as a metric."""
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
        stream.forget_launches()

    def streams(self) -> Sequence[AgentStream]:
        """Return the open streams."""
        return tuple(self._streams)

    def on_nodes(self, node_ids: Iterable[int]) -> Sequence[AgentStream]:
        """Return the streams of the agents on these nodes."""
        wanted = set(node_ids)
        return [stream for stream in self._streams if stream.node_id in wanted]

    async def drain(self) -> None:
        """End every stream after what was taken from it is committed and acknowledged."""
        await asyncio.gather(*(self._drain(stream) for stream in self.streams()))

    async def _drain(self, stream: AgentStream) -> None:
        if stream.reader is not None:
            stream.reader.cancel()
        await stream.settled()
        stream.end(grpc.StatusCode.UNAVAILABLE, "the collector is stopping")
