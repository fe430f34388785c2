"""One request over HTTP, and the parsing of its answer.

While the load is on, only the bytes of an answer and the times of their arrival are kept. They are parsed when all is
over, so that the client has little to do. A connection carries one request and ends with it.
"""

import asyncio
import json
import ssl
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any
from urllib.parse import urlsplit

from gpuagent_workloads.errors import WorkloadError

# Pieces of an answer, each with the monotonic time of its arrival in seconds.
Pieces = Sequence[tuple[float, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a server, and the key for it, which is sent and never stored."""

    url: str
    key: str | None = field(default=None, repr=False)

    def request(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """Return a whole HTTP request: POST with a body, else GET."""
        parts = urlsplit(self.url)
        content = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{'GET' if body is None else 'POST'} {parts.path.rstrip('/')}{path} HTTP/1.1",
            f"Host: {parts.netloc.rpartition('@')[2]}",
            "Connection: close",
            f"Content-Length: {len(content)}",
            *(["Content-Type: application/json"] if content else []),
            *([f"Authorization: Bearer {self.key}"] if self.key else []),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


class Exchange(asyncio.Protocol):
    """A request on its way: `pieces` grow as the answer arrives."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.pieces: list[tuple[float, bytes]] = []
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.WriteTransport | None = None

    async def run(self, endpoint: Endpoint) -> None:
        """Send the request and receive its answer. Raises OSError if there is no connection, or it broke."""
        parts = urlsplit(endpoint.url)
        is_secure = parts.scheme == "https"
        loop = asyncio.get_running_loop()
        port = parts.port or (443 if is_secure else 80)
        tls = ssl.create_default_context() if is_secure else None
        try:
            await loop.create_connection(lambda: self, parts.hostname or "", port, ssl=tls)
            await self._ended
        finally:
            if self._transport:
                self._transport.abort()  # close() would wait for unsent bytes and for TLS, and nothing waits for it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport
            transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Keep a piece of the answer, with the time."""
        self.pieces.append((time.monotonic(), data))
        # Servers close the connection; these are the ends of those that do not.
        if data == b"0\r\n\r\n" or data.endswith((b"\r\n0\r\n\r\n", b"[DONE]\n\n")):
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange."""
        self._end(exc)

    def _end(self, error: Exception | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The content of an answer.

    Attributes:
        status: of HTTP.
        token_seconds: monotonic time of each event that had text.
        is_complete: whether the server said that it had ended.
        usage: the numbers of tokens that the server counted; empty: it did not.
        error: what the server reported within the stream; None: nothing.
        model: the first model of a list.
        text: of all events.
    """

    status: int
    token_seconds: tuple[float, ...]
    is_complete: bool
    usage: dict[str, int]
    error: str | None
    model: str | None = None
    text: str = ""


def parse(pieces: Pieces) -> Answer | None:
    """Return the content of an answer, of a broken one as far as it came; None: not even a status came."""
    raw = b"".join(data for _, data in pieces)
    head, found, _ = raw.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if not found or len(words) < 2 or not words[1].isdigit():
        return None
    is_chunked = b"transfer-encoding: chunked" in head.lower()
    body = list(_body(pieces, raw, len(head) + 4, is_chunked=is_chunked))
    tokens: list[float] = []
    texts: list[str] = []
    usage: dict[str, int] = {}
    is_complete, error, model = False, None, None
    for at_seconds, line in _lines(body):
        text = line.removeprefix(b"data:").strip()
        if text == b"[DONE]":
            is_complete = True
            continue
        try:
            event = json.loads(text)
        except ValueError:
            continue
        if not isinstance(event, dict):
            continue
        usage = counted if isinstance(counted := event.get("usage"), dict) and counted else usage
        error = json.dumps(event["error"]) if event.get("error") else error
        model = model or next((each.get("id") for each in _objects(event.get("data"))), None)
        for choice in _objects(event.get("choices")):
            is_complete = is_complete or bool(choice.get("finish_reason"))
            parts = choice.get("delta") or choice.get("message") or choice
            said = "".join(str(parts.get(name) or "") for name in ("text", "content", "reasoning_content", "reasoning"))
            if said:
                tokens.append(at_seconds)
                texts.append(said)
    return Answer(
        status=int(words[1]),
        token_seconds=tuple(tokens),
        is_complete=is_complete,
        usage=usage,
        error=error,
        model=model,
        text="".join(texts),
    )


def _objects(found: Any) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _body(pieces: Pieces, raw: bytes, start: int, *, is_chunked: bool) -> Iterator[tuple[float, bytes]]:
    """Yield the parts of the body: chunks, or what came at once."""
    ends = list(accumulate(len(data) for _, data in pieces))
    if not is_chunked:
        for (at_seconds, data), end in zip(pieces, ends, strict=True):
            if end > start:
                yield at_seconds, data[max(0, start - (end - len(data))) :]
        return
    position = start
    while (line_end := raw.find(b"\r\n", position)) >= 0:
        try:
            size = int(raw[position:line_end].partition(b";")[0], 16)
        except ValueError:
            return
        position = line_end + 2
        if not size or position + size > len(raw):
            return
        # A chunk is there when its last byte is.
        yield pieces[bisect_left(ends, position + size)][0], raw[position : position + size]
        position += size + 2


def _lines(body: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Yield the lines of a body, each with the time at which it was whole."""
    rest, at_seconds = b"", 0.0
    for at_seconds, data in body:
        *whole, rest = (rest + data).split(b"\n")
        yield from ((at_seconds, line) for line in whole if line.strip())
    if rest.strip():
        yield at_seconds, rest


def ask(endpoint: Endpoint, path: str, body: dict[str, Any] | None = None, *, timeout_seconds: float) -> Answer:
    """Return the answer to a single request.

    Raises WorkloadError: the server cannot be reached, does not answer in time, or not by HTTP.
    """

    async def exchange() -> Pieces:
        one = Exchange(endpoint.request(path, body))
        await asyncio.wait_for(one.run(endpoint), timeout_seconds)
        return one.pieces

    try:
        answer = parse(asyncio.run(exchange()))
    except (OSError, asyncio.TimeoutError) as error:
        raise WorkloadError(f"{endpoint.url}{path} does not answer: {str(error) or 'timeout'}") from error
    if answer is None:
        raise WorkloadError(f"{endpoint.url}{path} answers something else than HTTP")
    return answer
