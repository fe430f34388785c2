"""Databases that take values by HTTP POST."""

import http.client
import json
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers import LIMIT_SECONDS, until


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A sender of each message as a request, one by one on one connection."""

    port: int
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, messages: Sequence[bytes], wait: Callable[[], object]) -> None:
        """Send them all.

        Raises:
            OSError: the server refused one.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.connect()
        wait()
        for message in messages:
            connection.request("POST", self.path, message, dict(self.headers))
            answer = connection.getresponse()
            said = answer.read()
            if answer.status >= http.client.MULTIPLE_CHOICES:
                raise OSError(f"{self.path}: {answer.status} {said[:200]!r}")
        connection.close()


@contextmanager
def running(command: Sequence[str], log: Path, health: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server until the context ends; enter when it answers at `health`."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(lambda: _answers(health, process, log), command[0])
        yield process
    finally:
        process.terminate()
        process.wait(LIMIT_SECONDS)


def free_port() -> int:
    """Return a free port of the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def get(url: str, data: bytes | None = None) -> bytes:
    """Return the answer of a server on the loopback; with `data` to a POST."""
    with urllib.request.urlopen(url, data) as answer:
        content: bytes = answer.read()
        return content


def read_back(base: str, column: str) -> tuple[int, float]:
    """Return the number of values of a column in the last two hours, and their sum, by PromQL."""
    count, total = (_query(base, f"sum({what}_over_time(gpu_{column}[2h]))") for what in ("count", "sum"))
    return int(count), total


def _query(base: str, promql: str) -> float:
    words = urllib.parse.urlencode({"query": promql})
    found: list[dict[str, Any]] = json.loads(get(f"{base}/api/v1/query?{words}"))["data"]["result"]
    return float(found[0]["value"][1]) if found else 0.0


def _answers(url: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return bool(get(url) or True)
    except urllib.error.URLError:
        return False
