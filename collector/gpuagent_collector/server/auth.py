"""Nobody enters without the token, except to ask whether the server is well."""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from gpuagent_proto.connection import TOKEN_METADATA_KEY, bearer

_OPEN_SERVICES = ("/grpc.health.v1.Health/",)

_REFUSAL = "this collector wants its token: use the token file that `collector serve` named (--token-file)"

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls that do not carry the token: UNAUTHENTICATED."""

    def __init__(self, token: str) -> None:
        self._expected = bearer(token)[0][1].encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Pass the call on, or answer it with a refusal."""
        if handler_call_details.method.startswith(_OPEN_SERVICES) or self._knows(handler_call_details):
            return await continuation(handler_call_details)
        return grpc.stream_stream_rpc_method_handler(_refuse)

    def _knows(self, call: grpc.HandlerCallDetails) -> bool:
        given = dict(call.invocation_metadata or ()).get(TOKEN_METADATA_KEY, "")
        return hmac.compare_digest(given.encode() if isinstance(given, str) else given, self._expected)


async def _refuse(_requests: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)
