"""A TCP proxy on loopback that does to connections what networks do."""

import asyncio
import socket
import struct
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from gpuagent.event_loop import EventLoop

_CHUNK_BYTES = 16 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Result = TypeVar("Result")


class Way(Enum):
    UP = "to the collector"
    DOWN = "to the agent"


@dataclass(slots=True, kw_only=True)
class Conditions:
    """How a connection is; the defaults are those of a good one."""

    # Ways on which nothing is passed on, and nothing more read.
    stalled: set[Way] = field(default_factory=set)
    # Before each chunk is passed on.
    delay_seconds: float = 0.0
    bytes_per_second: float | None = None
    # After so many more bytes this way the connection is reset, wherever in a frame that is.
    reset_after_bytes: dict[Way, int] = field(default_factory=dict)


class _Link:
    """One connection of an agent, and ours to the collector for it."""

    def __init__(
        self,
        agent: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        collector: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.conditions = Conditions()
        self.writers = {Way.UP: collector[1], Way.DOWN: agent[1]}
        self._readers = {Way.UP: agent[0], Way.DOWN: collector[0]}
        self._passable = asyncio.Event()
        self._ended: set[Way] = set()

    def look(self) -> None:
        self._passable.set()
        self._passable = asyncio.Event()

    def reset(self, *ways: Way) -> None:
        for way in ways:
            transport = self.writers[way].transport
            end = transport.get_extra_info("socket")
            if end is not None:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()

    def end(self, way: Way) -> None:
        self._ended.add(way)
        if self.writers[way].can_write_eof() and not self.writers[way].is_closing():
            self.writers[way].write_eof()

    async def pass_on(self) -> None:
        """Pass bytes on, both ways, until both have ended."""
        await asyncio.gather(*(self._pass_on(way) for way in Way))
        for writer in self.writers.values():
            writer.close()

    async def _pass_on(self, way: Way) -> None:
        with suppress(OSError):
            while chunk := await self._readers[way].read(_CHUNK_BYTES):
                await self._wait(way, len(chunk))
                if way in self._ended:
                    return
                left = self.conditions.reset_after_bytes.get(way)
                self.writers[way].write(chunk if left is None else chunk[:left])
                await self.writers[way].drain()
                if left is not None and len(chunk) >= left:
                    self.reset(*Way)
                elif left is not None:
                    self.conditions.reset_after_bytes[way] = left - len(chunk)
            self.end(way)

    async def _wait(self, way: Way, size_bytes: int) -> None:
        conditions = self.conditions
        rate = conditions.bytes_per_second
        await asyncio.sleep(conditions.delay_seconds + (size_bytes / rate if rate else 0))
        while way in self.conditions.stalled:
            await self._passable.wait()


class FaultProxy:
    """Listens on loopback and passes on to `target`; its methods may be called from any thread."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._loop = EventLoop("fault proxy")
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0
        self.listen()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def listen(self) -> None:
        """Take connections; the port stays the same."""
        self._do(self._listen())

    def refuse(self) -> None:
        self._do(self._refuse())

    def cut(self) -> None:
        self._do(self._reset(*Way))

    def strand(self) -> None:
        """Reset every connection towards the agent only, after stalling it: what it holds is passed on late."""
        self.impose(Conditions(stalled=set(Way)))
        self._do(self._reset(Way.DOWN))

    def half_close(self, way: Way) -> None:
        """End every connection one way, as who writes no more does."""
        self._do(self._half_close(way))

    def impose(self, conditions: Conditions) -> None:
        """Have every open connection be so; later ones are good ones."""
        self._do(self._impose(conditions))

    def connections(self) -> int:
        return len(self._links)

    def close(self) -> None:
        self.cut()
        self.refuse()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.start(work).result()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server:
            self._server.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        try:
            link = _Link((reader, writer), await asyncio.open_connection(host, int(port)))
        except OSError:
            writer.transport.abort()
            return
        self._links.add(link)
        try:
            await link.pass_on()
        finally:
            self._links.remove(link)

    async def _reset(self, *ways: Way) -> None:
        for link in self._links:
            link.reset(*ways)
            link.look()

    async def _half_close(self, way: Way) -> None:
        for link in self._links:
            link.end(way)

    async def _impose(self, conditions: Conditions) -> None:
        for link in self._links:
            link.conditions = Conditions(
                stalled=set(conditions.stalled),
                delay_seconds=conditions.delay_seconds,
                bytes_per_second=conditions.bytes_per_second,
                reset_after_bytes=dict(conditions.reset_after_bytes),
            )
            link.look()
