"""Delivery of rows in the name of another node: what only this machine knows of a run that recorded itself there."""

import asyncio
import contextlib
import logging
import secrets
import shutil
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gpuagent.clock import Clock
from gpuagent.delivery.pipeline import Pipeline
from gpuagent.delivery.spool import Spool
from gpuagent.delivery.spool_file import SPOOL_FILE
from gpuagent.delivery.stream import Orders
from gpuagent.delivery.uplink import Access, Delivery, Uplink
from gpuagent.runs.events import Tailed
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_common.errors import GpuAgentError

_LOG = logging.getLogger(__name__)

_LIMIT_BYTES = 16 * 1024 * 1024
# The end of a run waits for it.
_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Courier:
    """A sender with a spool for each delivery in `folder`; those of an earlier attempt are tried again.

    Attributes:
        start: starts a coroutine in the agent's event loop. One loop serves all: gRPC logs errors where one of several
            has been closed.
    """

    folder: Path
    access: Access
    clock: Clock
    start: Callable[[Coroutine[Any, Any, bool]], "Future[bool]"]

    def deliver(self, node_uuid: str, hostname: str, buffer: RecordBuffer) -> None:
        """Deliver the rows in `buffer` as the node's; what cannot be delivered now waits for the next call."""
        place = self.folder / secrets.token_hex(8)
        try:
            place.mkdir(parents=True)
            spool = Spool(place / SPOOL_FILE, node_uuid=node_uuid, limit_bytes=_LIMIT_BYTES)
            pipeline = Pipeline(
                buffer=buffer, spool=spool, clock=self.clock, tail=Tailed, on_spooled=lambda: None, interval_seconds=1.0
            )
            pipeline.flush()
            spool.close()
            # Last, so that a place with a name is complete.
            (place / "node").write_text(f"{node_uuid} {hostname}")
            for waiting in sorted(self.folder.glob("*/node")):
                self._send(waiting.parent)
        except Exception as error:  # noqa: BLE001
            # The run itself has ended; no failure here may stop the agent.
            _LOG.warning("cannot deliver the end of a run as the node %s: %s", hostname, error)

    def _send(self, place: Path) -> None:
        node_uuid, hostname = (place / "node").read_text().split(" ", 1)
        spool = Spool(place / SPOOL_FILE, node_uuid=node_uuid, limit_bytes=_LIMIT_BYTES)
        uplink = Uplink(
            access=self.access,
            spool=spool,
            buffer=RecordBuffer(),
            clock=self.clock,
            orders=Orders(
                launch=_refuse,
                cancel=lambda _run: None,
                read_output=_refuse,
                pace=lambda _busy, _idle: None,
                allows_commands=False,
            ),
            hostname=hostname,
        )
        try:
            is_delivered = self.start(_run_until_delivered(uplink)).result()
        finally:
            spool.close()
        if is_delivered:
            shutil.rmtree(place)
        else:
            _LOG.warning("rows of the node %s wait in %s: %s", hostname, place, uplink.last_error or "no answer")


async def _run_until_delivered(uplink: Uplink) -> bool:
    running = asyncio.create_task(uplink.run())
    try:
        return await asyncio.to_thread(uplink.wait_until_delivered, Delivery(seconds=_SECONDS))
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def _refuse(*_: object) -> NoReturn:
    raise GpuAgentError("this agent only delivers the end of a run")
