"""Damaged spools: opened by their agent and imported by a collector, each of which goes on or says what is wrong."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuagent.delivery.spool import Entry, Spool
from gpuagent.delivery.spool_file import SpoolError
from gpuagent.sampling.rows import encode_records
from gpuagent_collector.exchange.spool import SpoolError as UnreadableError
from gpuagent_collector.exchange.spool import import_spool, is_spool
from gpuagent_collector.store import Store
from tests.fuzz.choices import Choices
from tests.fuzz.tally import Attempt

TOKENS: tuple[bytes, ...] = ()

_NODE = "node"
_MOST_CHANGES = 8


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Damage a small spool in a few places, given as position (two bytes), length and bytes."""
    whole = _whole_spool(folder / "whole.sqlite")
    with Store.open(str(folder / "runs.duckdb")) as store:

        def attempt(data: bytes) -> None:
            damaged = _damaged(whole, Choices(data))
            _open_as_agent(folder / "agent", damaged)
            _import(folder / "carried.sqlite", damaged, store)

        yield attempt


def _whole_spool(file: Path) -> bytes:
    spool = Spool(file, node_uuid=_NODE, limit_bytes=1 << 20)
    rows = {"host_samples": [{"time": 1_900_000_000_000_000_000, "cpu_percent": 1.0}]}
    spool.append([Entry(records=encode_records(rows), droppable=True, from_unix_nano=1, to_unix_nano=2)] * 3)
    spool.close()
    return file.read_bytes()


def _damaged(whole: bytes, choices: Choices) -> bytes:
    content = bytearray(whole)
    choices.damage(content, changes=choices.below(_MOST_CHANGES))
    return bytes(content[: len(whole) // 2] if choices.below(16) == 1 else content)


def _open_as_agent(folder: Path, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    (folder / "spool.sqlite").write_bytes(content)
    with suppress(SpoolError):
        spool = Spool(folder / "spool.sqlite", node_uuid=_NODE, limit_bytes=1 << 20)
        try:
            spool.messages_after(0, limit=10)
            spool.sessions()
            spool.open_runs()
            spool.append([Entry(records=b"x", droppable=True, from_unix_nano=1, to_unix_nano=2)])
            spool.acknowledge({spool.session.session_id: 1})
            spool.waiting()
        finally:
            spool.close()


def _import(file: Path, content: bytes, store: Store) -> None:
    file.write_bytes(content)
    if is_spool(file):
        with suppress(UnreadableError):
            import_spool(file, store)
