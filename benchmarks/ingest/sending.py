"""Load from processes of their own, with messages prepared before the clock starts."""

import multiprocessing
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks.gpu_series import Rows
from benchmarks.ingest.contender import Encode, Sender

_LENGTH = struct.Struct("<I")


def write_messages(file: Path, messages: Iterable[bytes]) -> None:
    """Write messages for `send_all`."""
    with file.open("wb") as out:
        for message in messages:
            out.write(_LENGTH.pack(len(message)) + message)


def encode_all(folder: Path, encoding: str, encode: Encode, nodes: Sequence[Rows], seconds: int) -> list[Path]:
    """Write the messages of each node, of so many seconds each, into files of the folder that are not there yet."""
    files = [folder / f"{encoding} {rows.node}" for rows in nodes]
    for file, rows in zip(files, nodes, strict=True):
        if not file.exists():
            write_messages(file, map(encode, rows.messages(seconds)))
    return files


def send_all(senders: Mapping[Path, Sender]) -> float:
    """Send each file's messages with its sender, all at once; return the seconds until all are confirmed."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(len(senders) + 1)
    processes = [context.Process(target=_send, args=(file, sender, ready)) for file, sender in senders.items()]
    for process in processes:
        process.start()
    ready.wait()
    start = time.perf_counter()
    for process in processes:
        process.join()
    assert not any(process.exitcode for process in processes), "a sender failed"
    return time.perf_counter() - start


def _send(file: Path, sender: Sender, ready: Barrier) -> None:
    try:
        sender(_read_messages(file), ready.wait)
    except BaseException:
        ready.abort()
        raise


def _read_messages(file: Path) -> list[bytes]:
    messages = []
    with file.open("rb") as content:
        while head := content.read(_LENGTH.size):
            messages.append(content.read(_LENGTH.unpack(head)[0]))
    return messages
