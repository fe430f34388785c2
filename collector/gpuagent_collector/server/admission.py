"""Whether an agent may say what its hello says: that it is this node, and that these are its sessions."""

import asyncio
from collections.abc import Iterable

import duckdb
import grpc

from gpuagent_collector.errors import StoreError
from gpuagent_collector.server.agents import AgentRegistry
from gpuagent_collector.store import Store
from gpuagent_collector.trust.caller import Caller
from gpuagent_collector.trust.scopes import Scope
from gpuagent_collector.trust.tokens import Token
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.keys import key
from gpuagent_proto.v1 import telemetry_pb2 as wire

# At once; ten times what a collector is measured with.
MAX_STREAMS = 10_000

# An agent has one, and each user of a login node one agent.
MAX_STREAMS_A_NODE = 256

# In one hello; a spool has one for each `gpuagent run` that nothing was delivered of.
MAX_SESSIONS = 10_000

_MAX_NAME_CHARACTERS = 200

_SESSIONS = "SELECT DISTINCT session_id, node_id FROM sessions WHERE session_id = ANY(?)"

Refusal = tuple[grpc.StatusCode, str]


class Admission:
    """Decides on hellos."""

    def __init__(self, store: Store, registry: AgentRegistry) -> None:
        self._store = store
        self._registry = registry

    async def refusal(self, hello: wire.Hello, holder: Caller) -> Refusal | None:
        """Return why a hello is refused; None: it is not. What it is judged by holds until something is awaited."""
        nonsense = _nonsense(hello)
        if nonsense:
            return grpc.StatusCode.INVALID_ARGUMENT, nonsense
        try:
            foreign = await asyncio.to_thread(self._not_its_own, hello, holder)
        except GpuAgentError as error:
            return grpc.StatusCode.UNAVAILABLE, str(error)
        foreign = foreign or self._held_by_another(hello, holder)
        if foreign:
            return grpc.StatusCode.PERMISSION_DENIED, f"the token {holder.name} does not fit: {foreign}"
        return self._full(hello)

    def _not_its_own(self, hello: wire.Hello, holder: Caller) -> str | None:
        if holder.scope is Scope.OPERATOR or holder.token is None:
            return None
        strange = _strange_sessions(hello, holder.token) or self._stored_elsewhere(hello)
        return strange or _strange_node(hello, holder.token) or _bind(hello, holder)

    def _stored_elsewhere(self, hello: wire.Hello) -> str | None:
        named = _sessions(hello)
        connection = self._store.connect()
        try:
            rows = connection.execute(_SESSIONS, [list(named)]).fetchall()
        except duckdb.Error as error:
            raise StoreError(f"cannot read the store {self._store.spec.path}: {error}") from error
        finally:
            connection.close()
        return _ANOTHER_S if any(named[session_id] != node_id for session_id, node_id in rows) else None

    def _held_by_another(self, hello: wire.Hello, holder: Caller) -> str | None:
        """Look at sessions of open streams, too: what they sent first may not be in the store yet."""
        if holder.scope is Scope.OPERATOR:
            return None
        named = _sessions(hello)
        held = (stream.nodes for stream in self._registry.streams() if not named.keys().isdisjoint(stream.nodes))
        clash = any(nodes[each] != named[each] for nodes in held for each in named.keys() & nodes.keys())
        return _ANOTHER_S if clash else None

    def _full(self, hello: wire.Hello) -> Refusal | None:
        if len(self._registry.streams()) >= MAX_STREAMS:
            return grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS:,} agents are connected already"
        if len(self._registry.on_nodes([key(hello.node_uuid)])) >= MAX_STREAMS_A_NODE:
            return grpc.StatusCode.RESOURCE_EXHAUSTED, f"this node has {MAX_STREAMS_A_NODE} streams open already"
        return None


_ANOTHER_S = "one of the sessions is another node's"


def _sessions(hello: wire.Hello) -> dict[int, int]:
    return {key(session.session_uuid): key(session.node_uuid) for session in hello.sessions}


def _nonsense(hello: wire.Hello) -> str | None:
    if len(hello.sessions) > MAX_SESSIONS:
        return f"a hello with more than {MAX_SESSIONS:,} sessions; bring the spool by hand: collector import"
    if any(len(name) > _MAX_NAME_CHARACTERS or not name.isprintable() for name in _names(hello)):
        return f"a hello with a name of more than {_MAX_NAME_CHARACTERS} characters, or one that cannot be printed"
    return None


def _names(hello: wire.Hello) -> Iterable[str]:
    yield from (hello.node_uuid, hello.hostname, hello.agent_version)
    for session in hello.sessions:
        yield from (session.session_uuid, session.node_uuid)


def _strange_sessions(hello: wire.Hello, token: Token) -> str | None:
    if token.any_node or all(session.node_uuid == hello.node_uuid for session in hello.sessions):
        return None
    return "the spool has messages of another node; bring it by hand: collector import SPOOL"


def _strange_node(hello: wire.Hello, token: Token) -> str | None:
    if token.node is not None and not _is_called(hello, token.node):
        name = hello.hostname or hello.node_uuid
        return f"it was made for node {token.node}, and this is {name}"
    if token.bound_to not in (None, hello.node_uuid):
        return "it is bound to another node; make one for this node: collector tokens create agent"
    return None


def _is_called(hello: wire.Hello, name: str) -> bool:
    hostname = hello.hostname.lower()
    return name == hello.node_uuid or name.lower() in (hostname, hostname.partition(".")[0])


def _bind(hello: wire.Hello, holder: Caller) -> str | None:
    token = holder.token
    if token is None or holder.file is None or token.any_node or token.bound_to is not None:
        return None
    return holder.file.bind(token, hello.node_uuid)
