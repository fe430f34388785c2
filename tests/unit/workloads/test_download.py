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
from tests.unit.workloads.archives import Quiet, serving
from tests.unit.workloads.runs import refusal

CONTENT = bytes(range(256)) * 300
FILE = RemoteFile(name="digits.gz", size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


@dataclass
class Mirror:
    """A web server with the folders right, wrong, short, endless, cut and moved.

    In cut it breaks off after half; moved is a redirection to right. Other folders are not there.
    """

    url: str
    asked: list[str] = field(default_factory=list)

    def folder(self, name: str) -> str:
        return f"{self.url}/{name}"


ANSWERS = {
    "right": (200, CONTENT),
    "cut": (200, CONTENT),
    "wrong": (200, CONTENT[::-1]),
    "short": (200, CONTENT[:1000]),
    "endless": (200, CONTENT * 2),
    "moved": (302, b""),
}


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    class Handler(Quiet, http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            folder = self.path.split("/")[1]
            served.asked.append(folder)
            status, body = ANSWERS.get(folder, (404, b""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", served.folder(f"right/{FILE.name}"))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if folder == "cut" else body)

    with serving(Handler) as url:
        served = Mirror(url)
        yield served


@pytest.mark.parametrize(
    ("folders", "there", "asked"),
    [
        pytest.param(["right"], {}, ["right"], id="into a new directory"),
        pytest.param(["moved"], {}, ["moved", "right"], id="from where it was moved"),
        pytest.param(["right"], {FILE.name: CONTENT[::-1]}, ["right"], id="in place of a damaged one"),
        pytest.param(["right"], {f"{FILE.name}.part": b"x"}, ["right"], id="after an interrupted attempt"),
        pytest.param(["endless", "right"], {}, ["endless"], id="and no more than its published size"),
        *(
            pytest.param([bad, "right"], {}, [bad, "right"], id=f"not from {bad}")
            for bad in ("wrong", "nowhere", "short", "cut")
        ),
    ],
)
def test_a_file_is_fetched(
    mirror: Mirror, tmp_path: Path, folders: list[str], there: dict[str, bytes], asked: list[str]
) -> None:
    folder = tmp_path / "new"
    for name, content in there.items():
        folder.mkdir()
        (folder / name).write_bytes(content)
    assert fetch(FILE, [mirror.folder(name) for name in folders], folder)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [(FILE.name, CONTENT)]
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
    with pytest.raises(DataError, match="valid URL"):
        fetch(FILE, [mirror_url], tmp_path)


def test_a_file_that_is_there_is_not_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / FILE.name).write_bytes(CONTENT)
    assert not fetch(FILE, [mirror.folder("right")], tmp_path)
    assert mirror.asked == []


def test_a_file_of_unpublished_size_is_not_taken_when_it_was_cut(mirror: Mirror, tmp_path: Path) -> None:
    unknown = RemoteFile(name=FILE.name, size_bytes=None, sha256=None)
    assert fetch(unknown, [mirror.folder("cut"), mirror.folder("right")], tmp_path)
    assert mirror.asked == ["cut", "right"]
    assert (tmp_path / FILE.name).read_bytes() == CONTENT


def test_of_a_file_of_unpublished_size_no_more_is_taken_than_the_limit(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MAX_UNPUBLISHED_BYTES", 1000)
    fetch(RemoteFile(name=FILE.name, size_bytes=None, sha256=None), [mirror.folder("endless")], tmp_path)
    assert (tmp_path / FILE.name).stat().st_size == 1000


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
