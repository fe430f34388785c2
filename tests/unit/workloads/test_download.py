import hashlib
import http.server
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.data import download
from gpuagent_workloads.data.download import RemoteFile, fetch
from gpuagent_workloads.errors import DataError
from tests.unit.workloads.runs import refusal

CONTENT = bytes(range(256)) * 300
FILE = RemoteFile(name="digits.gz", size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


@dataclass
class Mirror:
    """A web server with the folders right, whole (knows no ranges), wrong, short, endless, cut and moved.

    In cut it breaks off after half of what is left; moved is a redirection to right. Other folders are not there.
    """

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
        "moved": (302, b""),
    }.get(folder, (404, b""))


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            folder = self.path.split("/")[1]
            served.asked.append((folder, self.headers["Range"]))
            status, body = answer("right" if folder == "cut" else folder, self.headers["Range"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", served.folder(f"right/{FILE.name}"))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if folder == "cut" else body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Mirror(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


PART, WHOLE = f"{FILE.name}.part", FILE.name


@pytest.mark.parametrize(
    ("folders", "there", "asked"),
    [
        pytest.param(["right"], {}, [("right", "bytes=0-")], id="into a new directory"),
        pytest.param(["whole"], {}, [("whole", "bytes=0-")], id="from a server that knows no ranges"),
        pytest.param(["moved"], {}, [("moved", "bytes=0-"), ("right", "bytes=0-")], id="from where it was moved"),
        pytest.param(["right"], {WHOLE: CONTENT[::-1]}, [("right", "bytes=0-")], id="in place of a damaged one"),
        pytest.param(["right"], {PART: CONTENT[:5000]}, [("right", "bytes=5000-")], id="from where it stopped"),
        pytest.param(["whole"], {PART: CONTENT[:5000]}, [("whole", "bytes=5000-")], id="anew without ranges"),
        pytest.param(["short", "right"], {}, [("short", "bytes=0-"), ("right", "bytes=1000-")], id="by two mirrors"),
        pytest.param(["endless", "right"], {}, [("endless", "bytes=0-")], id="and no more than its published size"),
        *(
            pytest.param([bad, "right"], {}, [(bad, "bytes=0-"), ("right", "bytes=0-")], id=f"not from {bad}")
            for bad in ("wrong", "nowhere")
        ),
    ],
)
def test_a_file_is_fetched(
    mirror: Mirror, tmp_path: Path, folders: list[str], there: dict[str, bytes], asked: list[tuple[str, str]]
) -> None:
    folder = tmp_path / "new"
    for name, content in there.items():
        folder.mkdir()
        (folder / name).write_bytes(content)
    assert fetch(FILE, [mirror.folder(name) for name in folders], folder)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [(WHOLE, CONTENT)]
    assert mirror.asked == asked


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"HTTP/1.1 500 \x1b[31mRed\r\n\r\n", "500 Internal Server Error"),
        (b"HTTP/1.1 599 \x1b[31mRed\r\n\r\n", ": 599."),
        (b"\x1b[31mRed\r\n\r\n", r"the connection broke \('\\x1b\[31mRed"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[\xff\x1b[31m/x\r\n\r\n", "not a valid URL"),
    ],
    ids=["status", "unknown-status", "no-http", "redirection"],
)
def test_what_a_server_says_does_not_reach_the_terminal(tmp_path: Path, head: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer_once, args=(server, head))
        thread.start()
        with pytest.raises(DataError, match=said) as failed:
            fetch(FILE, [f"http://127.0.0.1:{server.getsockname()[1]}"], tmp_path)
        thread.join()
    assert str(failed.value).isprintable()


def answer_once(server: socket.socket, head: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(head)


@pytest.mark.parametrize("mirror_url", ["http://localhost/ä", f"http://{'a' * 80}.invalid"])
def test_a_mirror_that_cannot_be_asked_is_told_in_words(tmp_path: Path, mirror_url: str) -> None:
    with pytest.raises(DataError, match="not a valid URL"):
        fetch(FILE, [mirror_url], tmp_path)


def test_a_file_that_is_there_is_not_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / FILE.name).write_bytes(CONTENT)
    assert not fetch(FILE, [mirror.folder("right")], tmp_path)
    assert mirror.asked == []


def test_a_cut_connection_is_an_error_that_keeps_what_has_come(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{len(CONTENT) // 2} bytes are missing"):
        fetch(FILE, [mirror.folder("cut")], tmp_path)
    assert fetch(FILE, [mirror.folder("moved")], tmp_path)
    assert mirror.asked[-1] == ("right", f"bytes={len(CONTENT) // 2}-")
    assert (tmp_path / FILE.name).read_bytes() == CONTENT


def test_a_file_of_unpublished_size_begins_anew_and_is_not_taken_when_it_was_cut(
    mirror: Mirror, tmp_path: Path
) -> None:
    unknown = RemoteFile(name=FILE.name, size_bytes=None, sha256=None)
    assert fetch(unknown, [mirror.folder("cut"), mirror.folder("right")], tmp_path)
    assert mirror.asked == [("cut", "bytes=0-"), ("right", "bytes=0-")]
    assert (tmp_path / FILE.name).read_bytes() == CONTENT


def test_of_a_file_of_unpublished_size_no_more_is_taken_than_the_limit(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MAX_UNPUBLISHED_BYTES", 1000)
    fetch(RemoteFile(name=FILE.name, size_bytes=None, sha256=None), [mirror.folder("endless")], tmp_path)
    assert (tmp_path / FILE.name).stat().st_size == 1000


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
    assert "cannot write" in refusal(fetch, FILE, ["http://127.0.0.1:1"], tmp_path / "file")


@pytest.mark.parametrize("url", ["file:///etc", "ftp://localhost", "http://", "http://[::1", "localhost/data"])
def test_only_web_addresses_are_mirrors(tmp_path: Path, url: str) -> None:
    with pytest.raises(MisuseError, match=re.escape(url)):
        fetch(FILE, [url], tmp_path)
