"""Prometheus, by remote write."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ingest import remote_write
from benchmarks.ingest.contender import Contender, Sender, folder_bytes
from benchmarks.ingest.http import Post, free_port, get, read_back, running


@dataclass(slots=True, kw_only=True)
class _Prometheus:
    pid: int
    port: int
    data: Path

    def sender(self, node: int) -> Sender:
        return Post(port=self.port, path="/api/v1/write", headers=remote_write.HEADERS)

    def settle(self) -> None:
        """Accepted values can be read at once, and are in its log, written but not synchronised."""

    def read_back(self, column: str) -> tuple[int, float]:
        return read_back(self._url, column)

    def disk_bytes(self) -> int:
        """Mostly its log; chunks, not yet blocks."""
        return folder_bytes(self.data)

    def compact(self) -> int:
        """Write everything into blocks, as it does by itself every two hours; only these are counted."""
        answer = json.loads(get(f"{self._url}/api/v1/admin/tsdb/snapshot", b""))
        return folder_bytes(self.data / "snapshots" / answer["data"]["name"])

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def _serve(folder: Path) -> Iterator[_Prometheus]:
    port, data, settings = free_port(), folder / "data", folder / "prometheus.yml"
    settings.write_text("")
    command = [
        "prometheus",
        f"--config.file={settings}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
        "--web.enable-admin-api",
        "--log.level=warn",
    ]
    with running(command, folder / "log", f"http://127.0.0.1:{port}/-/ready") as process:
        yield _Prometheus(pid=process.pid, port=port, data=data)


PROMETHEUS = Contender(
    name="Prometheus, remote write",
    program="prometheus",
    encoding="remote write",
    encode=remote_write.write_request,
    serve=_serve,
)
