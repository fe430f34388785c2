"""Admission of agents: a check that a hello's node and sessions belong to the caller."""

import asyncio
from collections.abc import Callable
from functools import partial

import grpc

from gpuagent_collector.server.agents import AgentRegistry
from gpuagent_collector.store import Store
from gpuagent_collector.trust.tokens import Caller, Scope
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.keys import key
from gpuagent_proto.v1 import telemetry_pb2 as wire

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
