import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuagent_workloads.data.download import RemoteFile, fetch
from gpuagent_workloads.errors import DataError, MisuseError

CONTENT = bytes(range(256)) * 300
FILE = RemoteFile(name="digits.gz", size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


@dataclass
class Mirror:
    """A web server with the folders right, whole (knows no ranges), wrong, short and endless; others are not there."""

    url: str
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def folder(self, name: str) -> str:
        return f"{self.url}/{name}"


def answer(folder: str, wanted: str | None) -> tuple[int, bytes]:
    start = int((wanted or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
    return {
        "right": (206, CONTENT[start:]),
        "whole": (200, CONTENT),
        "wrong": (200, CONTENT[::-1]),
        "short": (206, CONTENT[start : start + 1000]),
        "endless": (200, CONTENT * 2),
    }.get(folder, (404, b""))


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            folder = self.path.split("/")[1]
            served.asked.append((folder, self.headers["Range"]))
            status, body = answer(folder, self.headers["Range"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Mirror(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield served
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("folder", ["right", "whole"])
def test_a_file_is_fetched_into_a_new_directory(mirror: Mirror, tmp_path: Path, folder: str) -> None:
    assert fetch(FILE, [mirror.folder(folder)], tmp_path / "new")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "new").iterdir()] == [("digits.gz", CONTENT)]


def test_a_file_that_is_there_is_not_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / FILE.name).write_bytes(CONTENT)
    assert not fetch(FILE, [mirror.folder("right")], tmp_path)
    assert mirror.asked == []


def test_a_damaged_file_is_replaced(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / FILE.name).write_bytes(CONTENT[::-1])
    assert fetch(FILE, [mirror.folder("right")], tmp_path)
    assert (tmp_path / FILE.name).read_bytes() == CONTENT


@pytest.mark.parametrize("folder", ["right", "whole"])
def test_an_interrupted_download_goes_on_where_it_stopped(mirror: Mirror, tmp_path: Path, folder: str) -> None:
    (tmp_path / "digits.gz.part").write_bytes(CONTENT[:5000])
    assert fetch(FILE, [mirror.folder(folder)], tmp_path)
    assert mirror.asked == [(folder, "bytes=5000-")]
    assert (tmp_path / FILE.name).read_bytes() == CONTENT


def test_what_one_mirror_began_the_next_one_completes(mirror: Mirror, tmp_path: Path) -> None:
    assert fetch(FILE, [mirror.folder("short"), mirror.folder("right")], tmp_path)
    assert mirror.asked == [("short", "bytes=0-"), ("right", "bytes=1000-")]


@pytest.mark.parametrize("bad", ["wrong", "endless", "nowhere"])
def test_a_mirror_that_has_something_else_is_passed_over(mirror: Mirror, tmp_path: Path, bad: str) -> None:
    assert fetch(FILE, [mirror.folder(bad), mirror.folder("right")], tmp_path)
    assert (tmp_path / FILE.name).read_bytes() == CONTENT


def test_a_wrong_beginning_from_an_earlier_attempt_does_not_spoil_every_later_one(
    mirror: Mirror, tmp_path: Path
) -> None:
    (tmp_path / "digits.gz.part").write_bytes(b"x" * 5000)
    with pytest.raises(DataError, match="SHA-256"):
        fetch(FILE, [mirror.folder("right")], tmp_path)
    assert fetch(FILE, [mirror.folder("right")], tmp_path)


def test_when_no_mirror_has_it_the_error_says_what_each_answered(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.raises(DataError) as failed:
        fetch(FILE, [mirror.folder("nowhere"), mirror.folder("wrong"), "http://127.0.0.1:1"], tmp_path)
    for reason in ("404 Not Found", "SHA-256 is wrong", "Connection refused", "--mirror"):
        assert reason in str(failed.value)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write"):
        fetch(FILE, ["http://127.0.0.1:1"], tmp_path / "file")


def test_only_web_addresses_are_mirrors(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="file:///etc"):
        fetch(FILE, ["file:///etc"], tmp_path)
