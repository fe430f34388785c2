"""VictoriaMetrics on one node, by JSON lines and by remote write.

Its own binary format would be faster to take, but only VictoriaMetrics writes it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.gpu_series import Rows
from benchmarks.ingest import remote_write
from benchmarks.ingest.contender import Contender, Sender, folder_bytes
from benchmarks.ingest.http import Post, free_port, get, read_back, running
from tests.support.servers import until


def json_lines(rows: Rows) -> bytes:
    """Return a line for each series, for /api/v1/import."""
    lines = (
        json.dumps(
            {
                "metric": remote_write.labels_of(rows, gpu, column),
                "values": values.tolist(),
                "timestamps": millis.tolist(),
            },
            separators=(",", ":"),
        )
        for gpu, column, millis, values in rows.series()
    )
    return "\n".join(lines).encode()


@dataclass(slots=True, kw_only=True)
class _VictoriaMetrics:
    pid: int
    port: int
    data: Path
    way_in: Post

    def sender(self, node: int) -> Sender:
        return self.way_in

    def settle(self) -> None:
        """Make accepted values readable, which it does by itself within a second or two."""
        get(f"{self._url}/internal/force_flush")

    def read_back(self, column: str) -> tuple[int, float]:
        return read_back(self._url, column)

    def disk_bytes(self) -> int:
        return folder_bytes(self.data)

    def compact(self) -> int:
        """Merge all parts into one, as it does by itself with time."""
        get(f"{self._url}/internal/force_merge")
        until(lambda: "vm_active_force_merges 0" in get(f"{self._url}/metrics").decode(), "the end of the merge")
        return folder_bytes(self.data)

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def _serve(folder: Path, path: str, headers: dict[str, str]) -> Iterator[_VictoriaMetrics]:
    port, data = free_port(), folder / "data"
    command = [
        "victoria-metrics",
        f"-storageDataPath={data}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=1y",
        "-loggerLevel=WARN",
    ]
    with running(command, folder / "log", f"http://127.0.0.1:{port}/health") as process:
        way_in = Post(port=port, path=path, headers=headers)
        yield _VictoriaMetrics(pid=process.pid, port=port, data=data, way_in=way_in)


JSON_LINES = Contender(
    name="VictoriaMetrics, JSON lines",
    program="victoria-metrics",
    encoding="JSON lines",
    encode=json_lines,
    serve=partial(_serve, path="/api/v1/import", headers={}),
)
REMOTE_WRITE = Contender(
    name="VictoriaMetrics, remote write",
    program="victoria-metrics",
    encoding="remote write",
    encode=remote_write.write_request,
    serve=partial(_serve, path="/api/v1/write", headers=remote_write.HEADERS),
)
