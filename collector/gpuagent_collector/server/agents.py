"""Agents with an open stream: whether they may have one, and the messages to them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

import grpc
from prometheus_client import Gauge

from gpuagent_collector.ingest.messages import Outcome
from gpuagent_collector.ingest.presence import Presence
from gpuagent_collector.server.auth import ENDED, Validity
from gpuagent_collector.server.throttle import Share
from gpuagent_collector.store import Store
from gpuagent_collector.trust.tokens import Caller, Scope
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.keys import key
from gpuagent_proto.v1 import telemetry_pb2 as wire

# With this many messages waiting, no more is read from an agent that does not listen.
_OUTBOX_LIMIT = 1000


class Outbox:
    """Messages to an agent, in order; waiting acknowledgements are merged into one. It belongs to one event loop."""

    def __init__(self) -> None:
        self._messages: deque[wire.CollectorMessage] = deque()
        self._acks: dict[int, int] = {}
        self._closed = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def push(self, message: wire.CollectorMessage) -> None:
        """Add a message."""
        self._messages.append(message)
        if len(self._messages) >= _OUTBOX_LIMIT:
            self._room.clear()
        self._changed.set()

    def acknowledge(self, session_id: int, number: int) -> None:
        """Acknowledge all messages of the session up to `number`."""
        self._acks[session_id] = max(number, self._acks.get(session_id, 0))
        self._changed.set()

    def close(self) -> None:
        """End the iteration after all waiting messages."""
        self._closed = True
        self._changed.set()

    async def room(self) -> None:
        """Wait until the agent has taken enough of the waiting messages."""
        await self._room.wait()

    async def __aiter__(self) -> AsyncIterator[wire.CollectorMessage]:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._messages:
                yield self._messages.popleft()
            self._room.set()
            if self._acks:
                marks = [wire.Mark(session_id=session_id, number=number) for session_id, number in self._acks.items()]
                self._acks.clear()
                yield wire.CollectorMessage(ack=wire.Ack(marks=marks))
            if self._closed and not (self._messages or self._acks):
                return


class NoAnswerError(Exception):
    """An agent did not answer in time, or went away before."""


@dataclass(eq=False)
class AgentStream:
    """One open stream: its agent, its pending messages, and its end."""

    hello: wire.Hello
    holder: Caller
    # Shared with the other streams of the node.
    share: Share
    outbox: Outbox = field(default_factory=Outbox)
    # Runs that the agent took on this stream; the store may not know them yet.
    launched: set[str] = field(default_factory=set)
    # Messages before their commit.
    in_flight: set[asyncio.Future[Outcome]] = field(default_factory=set)
    reader: asyncio.Task[None] | None = None
    # Why the collector ends the stream; None while only the agent may.
    ending: tuple[grpc.StatusCode, str] | None = None

    def __post_init__(self) -> None:
        self.node_id = key(self.hello.node_uuid)
        # The agent's own session, which distinguishes it from others on its node.
        self.session_uuid = self.hello.sessions[-1].session_uuid if self.hello.sessions else ""
        # Session → the node it ran on.
        self.nodes = {key(session.session_uuid): key(session.node_uuid) for session in self.hello.sessions}
        # Identity of a question → its awaited answer.
        self._questions: dict[str, asyncio.Future[wire.AgentMessage | None]] = {}
        self._has_gone = False

    def is_of_other_machine(self, other: "AgentStream") -> bool:
        """Return whether the two are of one node and of two machines: the rule of `run_sessions.on_other_machine`."""
        one, two = self.hello, other.hello
        if self.node_id != other.node_id:
            return False
        if one.boot_id and two.boot_id:
            return one.boot_id != two.boot_id
        are_named = bool(one.hostname and two.hostname) and not (one.in_container or two.in_container)
        return are_named and one.hostname != two.hostname

    def end(self, code: grpc.StatusCode, reason: str) -> None:
        """Read nothing more, send waiting messages, and close with this status."""
        if self.ending is None:
            self.ending = (code, reason)
        if self.reader is not None:
            self.reader.cancel()
        self.outbox.close()

    async def settled(self) -> None:
        """Wait until every message read from the agent is answered."""
        if self.in_flight:
            await asyncio.wait(self.in_flight)

    async def ask(self, question_id: str, question: wire.CollectorMessage, seconds: float) -> wire.AgentMessage:
        """Send a question to the agent, and return its answer.

        Raises NoAnswerError: the agent does not answer within this time, or goes away.
        """
        answer: wire.AgentMessage | None = None
        if not self._has_gone:
            pending = self._questions[question_id] = asyncio.get_running_loop().create_future()
            self.outbox.push(question)
            try:
                answer = await asyncio.wait_for(pending, seconds)
            except asyncio.TimeoutError:
                raise NoAnswerError(f"it did not answer within {seconds:g} s; nothing is run") from None
            finally:
                del self._questions[question_id]
        if answer is None:
            raise NoAnswerError("it disconnected before it answered; `collector runs` lists the runs that it started")
        return answer

    def answer(self, question_id: str, message: wire.AgentMessage) -> bool:
        """Deliver an answer of the agent; return whether a question still waits for it."""
        question = self._questions.get(question_id)
        if question is None or question.done():
            return False
        question.set_result(message)
        return True

    def give_up_questions(self) -> None:
        """Fail the open questions of an agent that has gone."""
        self._has_gone = True
        for answer in self._questions.values():
            if not answer.done():
                answer.set_result(None)


class AgentRegistry:
    """All open streams. A session has one: a new stream ends the previous one."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self.validity = Validity()
        self._streams: set[AgentStream] = set()
        self._by_session: dict[int, AgentStream] = {}
        # A share lives as long as a stream of its node or a message of an ended one, so reconnecting gains nothing.
        self._shares: WeakValueDictionary[int, Share] = WeakValueDictionary()
        self.connected = Gauge("gpuagent_agents_connected", "Agents that have a stream open.", registry=None)
        self.connected.set_function(lambda: len(self._streams))

    def add(self, stream: AgentStream) -> None:
        """Add a stream, and end earlier ones of the same sessions."""
        for older in {self._by_session[session_id] for session_id in stream.nodes if session_id in self._by_session}:
            older.end(grpc.StatusCode.ABORTED, "a newer stream of the same session has taken over")
        self._streams.add(stream)
        if rivals := self._rivals(stream):
            for each in (stream, *rivals):
                self._name_rivals(each)
        self._by_session |= dict.fromkeys(stream.nodes, stream)
        self._presence.arrived(stream.nodes)

    def remove(self, stream: AgentStream) -> None:
        """Remove a stream."""
        self._streams.discard(stream)
        for rival in self._rivals(stream):
            self._name_rivals(rival)
        gone = [session_id for session_id in stream.nodes if self._by_session.get(session_id) is stream]
        for session_id in gone:
            del self._by_session[session_id]
        self._presence.left(gone)
        stream.give_up_questions()

    def _rivals(self, stream: AgentStream) -> Sequence[AgentStream]:
        return [other for other in self._streams if stream.is_of_other_machine(other)]

    def _name_rivals(self, stream: AgentStream) -> None:
        """Send an agent the names of other machines that are connected with its node's identity."""
        hostnames = sorted({rival.hello.hostname or "unnamed" for rival in self._rivals(stream)})
        stream.outbox.push(wire.CollectorMessage(same_identity=wire.SameIdentity(hostnames=hostnames)))

    def share(self, node_id: int) -> Share:
        """Return the share of the writer's queue that the streams of a node have together."""
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
        """End every stream after its messages are committed and acknowledged."""

        async def drain_one(stream: AgentStream) -> None:
            if stream.reader is not None:
                stream.reader.cancel()
            await stream.settled()
            stream.end(grpc.StatusCode.UNAVAILABLE, "the collector is stopping")

        await asyncio.gather(*map(drain_one, self.streams()))


# Open at once; ten times the number that a collector is measured with.
MAX_STREAMS = 10_000

# An agent has one stream, and each user of a login node one agent.
MAX_STREAMS_A_NODE = 256

# In one hello; a spool has one for each `gpuagent run` without any delivery.
MAX_SESSIONS = 10_000

# Of all open streams of a node, whose names the collector holds; one that is replaced counts until it has ended.
MAX_SESSIONS_A_NODE = 2 * MAX_SESSIONS

_MAX_NAME_CHARACTERS = 200

_SESSIONS = "SELECT DISTINCT session_id, node_id FROM sessions WHERE session_id = ANY(?)"

Refusal = tuple[grpc.StatusCode, str]


class Admission:
    """A judge of hellos."""

    def __init__(self, store: Store, registry: AgentRegistry) -> None:
        self._store = store
        self._registry = registry

    async def refusal(self, hello: wire.Hello, holder: Caller) -> Refusal | None:
        """Return why a hello is refused, or None. The answer holds until the next await."""
        if len(hello.sessions) > MAX_SESSIONS:
            reason = f"a hello with more than {MAX_SESSIONS:,} sessions; import the spool by hand: collector import"
            return grpc.StatusCode.INVALID_ARGUMENT, reason
        names = [hello.node_uuid, hello.hostname, hello.agent_version]
        names += [name for session in hello.sessions for name in (session.session_uuid, session.node_uuid)]
        if any(len(name) > _MAX_NAME_CHARACTERS or not name.isprintable() for name in names):
            reason = f"a hello with a name of more than {_MAX_NAME_CHARACTERS} characters, or an unprintable one"
            return grpc.StatusCode.INVALID_ARGUMENT, reason
        try:
            foreign = await asyncio.to_thread(self._find_foreign, hello, holder)
            refusal = self._refusal_now(hello, holder, foreign)
            if refusal is None and (bind := _find_binding(holder)):
                # Last, because a binding is for good, and before another look, because it takes time.
                foreign = await asyncio.to_thread(bind, hello.node_uuid)
                refusal = self._refusal_now(hello, holder, foreign)
        except GpuAgentError as error:
            return grpc.StatusCode.UNAVAILABLE, str(error)
        return refusal

    def _refusal_now(self, hello: wire.Hello, holder: Caller, foreign: str | None) -> Refusal | None:
        if foreign is None and holder.scope is not Scope.OPERATOR:
            # The sessions of open streams too, because their first rows may not be stored yet.
            named = _sessions(hello)
            held = (stream.nodes for stream in self._registry.streams() if not named.keys().isdisjoint(stream.nodes))
            if any(nodes[each] != named[each] for nodes in held for each in named.keys() & nodes.keys()):
                foreign = _FOREIGN_SESSION
        if foreign:
            return grpc.StatusCode.PERMISSION_DENIED, f"the token {holder.name} does not fit: {foreign}"
        if len(self._registry.streams()) >= MAX_STREAMS:
            return grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS:,} agents are connected already"
        others = self._registry.on_nodes([key(hello.node_uuid)])
        if len(others) >= MAX_STREAMS_A_NODE:
            return grpc.StatusCode.RESOURCE_EXHAUSTED, f"this node has {MAX_STREAMS_A_NODE} streams open already"
        if len(hello.sessions) + sum(len(each.nodes) for each in others) > MAX_SESSIONS_A_NODE:
            return grpc.StatusCode.RESOURCE_EXHAUSTED, f"this node has {MAX_SESSIONS_A_NODE:,} sessions open already"
        return None

    def _find_foreign(self, hello: wire.Hello, holder: Caller) -> str | None:
        """Return why the hello does not fit the token or the store, or None."""
        token = holder.token
        if holder.scope is Scope.OPERATOR or token is None:
            return None
        if not token.any_node and any(session.node_uuid != hello.node_uuid for session in hello.sessions):
            return "the spool has messages of another node; import it by hand: collector import SPOOL"
        named = _sessions(hello)
        with self._store.using("read") as connection:
            rows = connection.execute(_SESSIONS, [list(named)]).fetchall()
        if any(named[session_id] != node_id for session_id, node_id in rows):
            return _FOREIGN_SESSION
        hostname = hello.hostname.lower()
        names = (hello.node_uuid, hostname, hostname.partition(".")[0])
        if token.node is not None and not {token.node, token.node.lower()} & {*names}:
            return f"it was made for node {token.node}, and this is {hello.hostname or hello.node_uuid}"
        if token.bound_to not in (None, hello.node_uuid):
            return "it is bound to another node; make one for this node: collector tokens create agent"
        return None


def _find_binding(holder: Caller) -> Callable[[str], str | None] | None:
    """Return what binds the caller's token to the UUID of a node; None: it is bound already, or to none."""
    token = holder.token
    if holder.scope is Scope.OPERATOR or token is None or token.any_node or token.bound_to is not None:
        return None
    return None if holder.file is None else partial(holder.file.bind, token)


_FOREIGN_SESSION = "one of the sessions is another node's"


def _sessions(hello: wire.Hello) -> dict[int, int]:
    return {key(session.session_uuid): key(session.node_uuid) for session in hello.sessions}
