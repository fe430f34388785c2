"""Authentication and audit of every call, except health checks, which are open to all."""

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message

from gpuagent_collector.trust import audit
from gpuagent_collector.trust.tokens import UNREADABLE, Caller, Scope, Token, TokenFile, Tokens
from gpuagent_common.connection import TOKEN_METADATA_KEY
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.query_service_pb2 import QueryRequest
from gpuagent_proto.v1.run_service_pb2 import (
    CancelExperimentRequest,
    CancelRequest,
    ExperimentsRequest,
    LaunchExperimentRequest,
    LaunchExperimentResponse,
    LaunchRequest,
    LaunchResponse,
    LogsRequest,
)

_HEALTH = "/grpc.health.v1.Health/"
# A single answer only: a stream that anybody could hold open would cost memory.
_OPEN = f"{_HEALTH}Check"

# Service → scopes that may call it. Other services are for operators.
_ALLOWED: Mapping[str, frozenset[Scope]] = {
    "/gpuagent_proto.v1.TelemetryService/": frozenset({Scope.AGENT, Scope.OPERATOR}),
    "/gpuagent_proto.v1.QueryService/": frozenset({Scope.VIEWER, Scope.OPERATOR}),
    _HEALTH: frozenset(Scope),
}

_REFUSAL = "this collector requires its token; use the token file that `collector serve` printed (--token-file)"
# The end of a stream whose token is no longer valid.
ENDED = "the token has expired or was revoked; the collector's owner makes another: collector tokens create"

# Of an unknown caller's method in the audit record.
_MAX_METHOD_CHARACTERS = 200

_LOG = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

_CALLER: contextvars.ContextVar[Caller] = contextvars.ContextVar("caller")


def caller() -> Caller:
    """Return the caller of the call that is being served. Raises LookupError: the call needs no token."""
    return _CALLER.get()


class Gate(grpc.aio.ServerInterceptor):
    """A gate that refuses calls without a token (UNAUTHENTICATED) or with the wrong scope (PERMISSION_DENIED)."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Pass the call on, or answer it with a refusal."""
        method = handler_call_details.method
        if method == _OPEN:
            return await continuation(handler_call_details)
        try:
            holder = self._tokens.holder(_read_token(handler_call_details))
        except GpuAgentError as error:
            _LOG.warning("only the owner's token is accepted: %s", error)
            return _refuse_with(method, None, grpc.StatusCode.UNAVAILABLE, UNREADABLE)
        if holder is None:
            return _refuse_with(method, None, grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)
        if holder.scope not in _allowed_scopes(method):
            wanted = " or ".join(scope.value for scope in Scope if scope in _allowed_scopes(method))
            article = "a" if holder.scope is Scope.VIEWER else "an"
            words = (
                f"the token {holder.name} is {article} {holder.scope.value}'s, and this takes one of scope {wanted}; "
                f"the collector's owner makes one: collector tokens create {wanted.partition(' ')[0]} --name NAME"
            )
            return _refuse_with(method, holder, grpc.StatusCode.PERMISSION_DENIED, words)
        _CALLER.set(holder)
        handler = await continuation(handler_call_details)
        return handler if method.startswith(_HEALTH) else _audit(handler, method, holder)


def _read_token(call: grpc.HandlerCallDetails) -> str:
    values = [value for key, value in call.invocation_metadata or () if key == TOKEN_METADATA_KEY]
    # Of several, another program on the way may have checked another one.
    value = values[0] if len(values) == 1 else ""
    text = value if isinstance(value, str) else value.decode("utf-8", "replace")
    scheme, _, token = text.partition(" ")
    return token if scheme == "Bearer" else ""


def _allowed_scopes(method: str) -> frozenset[Scope]:
    service = f"{method.rpartition('/')[0]}/"
    return _ALLOWED.get(service, frozenset({Scope.OPERATOR}))


def _refuse_with(method: str, holder: Caller | None, code: grpc.StatusCode, words: str) -> Handler:
    async def refuse(_requests: object, context: Context) -> None:
        audit.refused(
            who=holder.name if holder else None,
            peer=context.peer(),
            method=method[:_MAX_METHOD_CHARACTERS],
            outcome=code.name.lower(),
        )
        await context.abort(code, words)

    return grpc.stream_stream_rpc_method_handler(refuse)


def _audit(handler: Handler, method: str, holder: Caller) -> Handler:
    """Return a handler that also records the call, and sends nothing more once its token is revoked."""
    if handler is None or handler.request_streaming:
        return handler
    # The stubs know only synchronous servers.
    answer_call: Any = handler.unary_unary
    stream_call: Any = handler.unary_stream

    async def answer(request: Message, context: Context) -> Any:
        peer = context.peer()
        response: Message | None = None
        try:
            response = await answer_call(request, context)
            return response
        finally:
            _note(method, holder, peer, request, response, context.code())

    async def stream(request: Message, context: Context) -> AsyncIterator[Any]:
        # Not on exit, which follows the call's own end when the caller goes away: gRPC's core, asked for the peer of a
        # call that is over, ends the process (grpcio 1.85).
        peer = context.peer()
        try:
            async with aclosing(stream_call(request, context)) as responses:
                async for response in responses:
                    if not holder.is_valid():
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, ENDED)
                    yield response
        finally:
            _note(method, holder, peer, request, None, context.code())

    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(stream, handler.request_deserializer, handler.response_serializer)
    return grpc.unary_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


def _note(method: str, holder: Caller, peer: str, request: Message, response: Message | None, code: Any) -> None:
    audit.note(
        method.rpartition("/")[2].lower(),
        who=holder.name,
        peer=peer,
        **describe_call(request, response),
        outcome=code.name.lower() if isinstance(code, grpc.StatusCode) else "ok" if not code else str(code),
    )


def describe_call(request: Message, response: Message | None) -> dict[str, Any]:
    """Return the fields of the audit record for a request, and for its answer where that is known."""
    match request:
        case QueryRequest():
            return audit.shortened(request.sql)
        case LaunchRequest():
            runs = None
            if isinstance(response, LaunchResponse):
                runs = [run_id for agent in response.agents for run_id in agent.run_ids]
            spec = request.spec
            return {
                "sessions": list(request.session_uuids),
                "workload": spec.workload or None,
                # Only a command's program: its arguments may hold secrets, and the run records them.
                "program": spec.command[0] if spec.command else None,
                "arguments": len(spec.command) - 1 if spec.command else None,
                "environment": spec.environment or None,
                "image": spec.image or None,
                "repeats": max(1, spec.repeats),
                "runs": runs,
            }
        case LaunchExperimentRequest():
            names = None
            if isinstance(response, LaunchExperimentResponse):  # one name for each agent that has begun it
                names = [agent.state.name for agent in response.agents if agent.HasField("state")]
            return {
                "sessions": list(request.session_uuids),
                "file": request.file.file_name,
                "bytes": len(request.file.content),
                "experiments": names,
            }
        case ExperimentsRequest() | CancelExperimentRequest():
            return {"experiment": request.name}
        case CancelRequest() | LogsRequest():
            return {"run": request.run_id}
        case _:
            return {}


class Validity:
    """Validity of open streams' tokens, read once in each turn of the event loop for all its messages.

    A turn's messages arrived before the look, so no message passes that was sent after its token was revoked.
    """

    def __init__(self) -> None:
        self._snapshots: dict[TokenFile, Callable[[Token], bool]] = {}

    def is_valid(self, holder: Caller) -> bool:
        """Return whether a caller's token is still valid; no token is while the token file cannot be read."""
        if holder.token is None or holder.file is None:
            return True
        snapshot = self._snapshots.get(holder.file)
        if snapshot is None:
            try:
                snapshot = holder.file.snapshot()
            except GpuAgentError:
                snapshot = lambda _: False  # noqa: E731 - no token is valid then
            self._snapshots[holder.file] = snapshot
            asyncio.get_running_loop().call_soon(self._snapshots.clear)
        return snapshot(holder.token)
