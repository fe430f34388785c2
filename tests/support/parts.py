"""Parts of an agent, put together for tests of one of them."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpuagent.clock import SystemClock
from gpuagent.images.records import ImageRecords
from gpuagent.runs.catalogue import Catalogue, Workload, parse_list
from gpuagent.runs.events import Tails
from gpuagent.runs.runner import Runner
from gpuagent.sampling.rows import RecordBuffer


class FixedCatalogue(Catalogue):
    """A catalogue with a fixed list, which starts no other Python."""

    def __init__(self, entries: Sequence[object]) -> None:
        super().__init__("python3")
        self._entries = entries

    def workloads(self) -> dict[str, Workload]:
        return {workload.name: workload for workload in parse_list(json.dumps(self._entries))}


def make_runner(
    folder: Path, buffer: RecordBuffer, tails: Tails, flush: Callable[[], None], *, node_lock: Path | None = None
) -> Runner:
    return Runner(
        directory=folder / "runs",
        images=ImageRecords(folder / "images"),
        buffer=buffer,
        tails=tails,
        clock=SystemClock(),
        flush=flush,
        deliver_for=lambda _node, _name, _rows: None,
        node_lock=node_lock,
    )


@contextmanager
def executing(runner: Runner) -> Iterator[None]:
    """Execute runs until the end of the block."""
    stop = threading.Event()
    thread = threading.Thread(target=runner.run, args=(stop,))
    thread.start()
    yield
    stop.set()
    runner.close()
    thread.join()
