"""Who calls, and whether they may: every call but those that ask whether the server is well goes through here."""

import contextvars
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message

from gpuagent_collector.server.calls import describe_call
from gpuagent_collector.trust import audit
from gpuagent_collector.trust.caller import UNREADABLE, Caller, Tokens
from gpuagent_collector.trust.scopes import Scope
from gpuagent_common.connection import TOKEN_METADATA_KEY
from gpuagent_common.errors import GpuAgentError

_HEALTH = "/grpc.health.v1.Health/"
# One answer to a question; a stream that anybody could hold open would cost memory.
_OPEN = f"{_HEALTH}Check"

# Service → who may call it. What is not listed is for operators.
_ALLOWED: Mapping[str, frozenset[Scope]] = {
    "/gpuagent_proto.v1.TelemetryService/": frozenset({Scope.AGENT, Scope.OPERATOR}),
    "/gpuagent_proto.v1.QueryService/": frozenset({Scope.VIEWER, Scope.OPERATOR}),
    _HEALTH: frozenset(Scope),
    "/grpc.reflection.v1alpha.ServerReflection/": frozenset(Scope),
}

_REFUSAL = "this collector wants its token: use the token file that `collector serve` named (--token-file)"
# What is said to who has something open with a token that is not valid any more.
ENDED = "the token has expired or was revoked; who runs the collector makes another: collector tokens create"

# Of what an unknown caller asked for, in the record.
_MAX_METHOD_CHARACTERS = 200

_LOG = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


_CALLER: contextvars.ContextVar[Caller] = contextvars.ContextVar("caller")


def caller() -> Caller:
    """Return who made the call that is being served.

    Raises:
        LookupError: nobody asked for a token.
    """
    return _CALLER.get()


class Gate(grpc.aio.ServerInterceptor):
    """Refuses calls without a token (UNAUTHENTICATED) or with one that is for other things (PERMISSION_DENIED)."""

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
            holder = self._tokens.holder(_given(handler_call_details))
        except GpuAgentError as error:
            _LOG.warning("tokens other than the owner's open nothing: %s", error)
            return _refusing(method, None, grpc.StatusCode.UNAVAILABLE, UNREADABLE)
        if holder is None:
            return _refusing(method, None, grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)
        if holder.scope not in _allowed(method):
            return _refusing(method, holder, grpc.StatusCode.PERMISSION_DENIED, _wrong_scope(holder, method))
        _CALLER.set(holder)
        handler = await continuation(handler_call_details)
        return handler if method.startswith(_HEALTH) else _noted(handler, method, holder)


def _given(call: grpc.HandlerCallDetails) -> str:
    value = dict(call.invocation_metadata or ()).get(TOKEN_METADATA_KEY, "")
    text = value if isinstance(value, str) else value.decode("utf-8", "replace")
    scheme, _, token = text.partition(" ")
    return token if scheme == "Bearer" else ""


def _allowed(method: str) -> frozenset[Scope]:
    service = f"{method.rpartition('/')[0]}/"
    return _ALLOWED.get(service, frozenset({Scope.OPERATOR}))


def _wrong_scope(holder: Caller, method: str) -> str:
    wanted = " or ".join(scope.value for scope in Scope if scope in _allowed(method))
    return (
        f"the token {holder.name} is {_article(holder.scope)} {holder.scope.value}'s, and this takes one of scope "
        f"{wanted}; who runs the collector makes one: collector tokens create {wanted.partition(' ')[0]}"
    )


def _article(scope: Scope) -> str:
    return "a" if scope is Scope.VIEWER else "an"


def _refusing(method: str, holder: Caller | None, code: grpc.StatusCode, words: str) -> Handler:
    async def refuse(_requests: object, context: Context) -> None:
        audit.refused(
            who=holder.name if holder else None,
            peer=context.peer(),
            method=method[:_MAX_METHOD_CHARACTERS],
            outcome=code.name.lower(),
        )
        await context.abort(code, words)

    return grpc.stream_stream_rpc_method_handler(refuse)


def _noted(handler: Handler, method: str, holder: Caller) -> Handler:
    """Return a handler that also records what was asked, and gives nothing more to a token that was revoked."""
    if handler is None or handler.request_streaming:
        return handler
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _noted_stream(handler.unary_stream, method, holder),
            handler.request_deserializer,
            handler.response_serializer,
        )
    return grpc.unary_unary_rpc_method_handler(
        _noted_answer(handler.unary_unary, method, holder), handler.request_deserializer, handler.response_serializer
    )


def _noted_answer(behaviour: Any, method: str, holder: Caller) -> Any:
    async def answer(request: Message, context: Context) -> Any:
        peer = context.peer()
        response: Message | None = None
        try:
            response = await behaviour(request, context)
            return response
        finally:
            _note(method, holder, peer, request, response, context.code())

    return answer


def _noted_stream(behaviour: Any, method: str, holder: Caller) -> Any:
    async def stream(request: Message, context: Context) -> AsyncIterator[Any]:
        # Not at the end, which comes after the call's own when the caller goes away: gRPC's core, asked for the peer of
        # a call that is over, ends the process (grpcio 1.85).
        peer = context.peer()
        try:
            async with aclosing(behaviour(request, context)) as responses:
                async for response in responses:
                    if not holder.is_valid():
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, ENDED)
                    yield response
        finally:
            _note(method, holder, peer, request, None, context.code())

    return stream


def _note(method: str, holder: Caller, peer: str, request: Message, response: Message | None, code: Any) -> None:
    audit.note(
        method.rpartition("/")[2].lower(),
        who=holder.name,
        peer=peer,
        **describe_call(request, response),
        outcome=code.name.lower() if isinstance(code, grpc.StatusCode) else "ok" if not code else str(code),
    )
