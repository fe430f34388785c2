"""A server with OpenAI's API that does what a test says, and keeps when it did it, on the clock of its clients."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# Writes an answer: gets the connection and the request.
Behaviour = Callable[["Connection", dict[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class Stamps:
    """Monotonic times of one request, in seconds, in the order in which it arrived."""

    received: float
    tokens: list[float] = field(default_factory=list)


class Connection:
    """One request, to be answered."""

    def __init__(self, writer: asyncio.StreamWriter, stamps: Stamps) -> None:
        self._writer, self.stamps = writer, stamps

    async def head(self, status: int = 200) -> None:
        self._writer.write(f"HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        await self._writer.drain()

    async def event(self, event: dict[str, Any] | str) -> None:
        text = event if isinstance(event, str) else json.dumps(event)
        data = f"data: {text}\n\n".encode()
        self._writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self._writer.drain()

    async def token(self) -> None:
        # Stamped before it leaves: no client can have it earlier.
        self.stamps.tokens.append(time.monotonic())
        await self.event({"choices": [{"text": "x"}]})

    async def end(self, usage: dict[str, int] | None = None) -> None:
        if usage:
            await self.event({"choices": [], "usage": usage})
        await self.event("[DONE]")
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def abort(self) -> None:
        self._writer.transport.abort()


@dataclass
class StandIn:
    """A running server.

    Attributes:
        url: its address.
        stamps: of each request.
        most_at_once: the largest number of requests in the making.
    """

    behave: Behaviour
    url: str = ""
    stamps: list[Stamps] = field(default_factory=list)
    most_at_once: int = 0
    serving: set["asyncio.Task[Any]"] = field(default_factory=set)
    _open: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.serving.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0] or 0)
            body = json.loads(await reader.readexactly(length) or b"{}")
            stamps = Stamps(time.monotonic())
            self.stamps.append(stamps)
            self._open += 1
            self.most_at_once = max(self.most_at_once, self._open)
            try:
                await self.behave(Connection(writer, stamps), body)
            finally:
                self._open -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@contextmanager
def standing_in(behave: Behaviour) -> Iterator[StandIn]:
    """Yield a server that runs in a thread."""
    stand_in = StandIn(behave)
    ready, ends = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = await asyncio.start_server(stand_in._serve, "127.0.0.1", 0, backlog=1000)
        stand_in.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await ends.wait()
        # A closed server makes no transport of what it accepted in this turn; asyncio would drop it unclosed.
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
        await asyncio.sleep(0)
        server.close()
        # Connections that were just accepted get their task later, and a transport closes its socket a turn later.
        for _ in range(20):
            for task in asyncio.all_tasks() & stand_in.serving:
                task.cancel()
            for transport in [*loop._transports.values()]:  # type: ignore[attr-defined]
                transport.abort()
            await asyncio.sleep(0.001)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    try:
        yield stand_in
    finally:
        loop.call_soon_threadsafe(ends.set)
        thread.join()
        loop.close()


async def answer_at_once(connection: Connection, body: dict[str, Any]) -> None:
    """Answer with as many tokens as were asked for."""
    await connection.head()
    for _ in range(body["max_tokens"]):
        await connection.token()
    await connection.end({"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]})
