"""The latest readings of each GPU, for people who watch a run; the spool has all of them."""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gpuagent.sampling.rows import Row
from gpuagent.sources.source import Value
from gpuagent_proto.v1.agent_service_pb2 import GpuNow

# Older readings are not shown. Processes are listed once a second.
_RECENT_NANO = 5_000_000_000

_COLUMNS = [field.name for field in GpuNow.DESCRIPTOR.fields if field.name != "run_ids"]


@dataclass(slots=True)
class LatestGpus:
    """The last value of each figure and when it was read, by GPU; the runs with processes there by GPU and process."""

    _figures: dict[Value, dict[str, tuple[int, float]]] = field(default_factory=dict)
    _holders: dict[tuple[Value, Value], tuple[int, str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, table: str, rows: Iterable[Row]) -> None:
        """Keep what rows of `table` say of GPUs."""
        if table == "gpu_samples":
            with self._lock:
                for row in rows:
                    figures = self._figures.setdefault(row.get("device_id"), {})
                    for column in _COLUMNS:
                        value, read = row.get(column), row["time"]
                        if isinstance(value, int | float) and isinstance(read, int):
                            figures[column] = (read, value)
        elif table == "gpu_process_samples":
            with self._lock:
                for row in rows:
                    run_id, read = row.get("run_id"), row["time"]
                    if isinstance(run_id, str) and isinstance(read, int):
                        self._holders[row.get("device_id"), row.get("pid")] = (read, run_id)

    def read(self, now_unix_nano: int | None = None) -> Iterator[GpuNow]:
        """Yield each GPU that runs have processes on, with its figures of the last 5 s and the identities of those."""
        since = (time.time_ns() if now_unix_nano is None else now_unix_nano) - _RECENT_NANO
        with self._lock:
            self._holders = {key: held for key, held in self._holders.items() if held[0] >= since}
            for device_id, figures in self._figures.items():
                runs = sorted({run_id for (device, _), (_, run_id) in self._holders.items() if device == device_id})
                if runs:
                    recent = {column: value for column, (read, value) in figures.items() if read >= since}
                    yield GpuNow(run_ids=runs, **recent)
