"""The web server: who is let in, what is refused, and that nobody holds up others."""

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuagent_collector.trust.caller import Tokens
from gpuagent_collector.trust.certificate_folder import CertificateFolder
from gpuagent_collector.trust.server_certificate import ServerCertificate
from gpuagent_collector.web.exchange import Query, Response, Route, text
from gpuagent_collector.web.server import MAX_CONNECTIONS, WebServer
from gpuagent_common.address import Address
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.support.http import BEARER, PATIENCE_SECONDS, TOKEN, basic, exchange, fetch, served


def echo(query: Query) -> Response:
    return text(repr(sorted(query.items())))


def unavailable(_query: Query) -> Response:
    raise GpuAgentError("the store is busy\x1b[2J")


def misused(_query: Query) -> Response:
    raise MisuseError("no such column")


def broken(_query: Query) -> Response:
    raise ZeroDivisionError("secret")


ROUTES = (
    Route(path="/", answer=echo),
    Route(path="/open", answer=echo, needs_token=False),
    Route(path="/unavailable", answer=unavailable),
    Route(path="/misused", answer=misused),
    Route(path="/broken", answer=broken),
)


@pytest.fixture
def server() -> Iterator[WebServer]:
    with served(ROUTES) as server:
        yield server


@pytest.mark.parametrize(
    "headers", [BEARER, {"Authorization": f"bearer  {TOKEN} "}, basic(TOKEN), basic(TOKEN, name=""), basic(TOKEN, "ä")]
)
def test_the_token_lets_in_as_grpc_wants_it_or_as_a_browsers_password(
    server: WebServer, headers: dict[str, str]
) -> None:
    assert fetch(server.address, "/", headers).status == 200


@pytest.mark.parametrize("path", ["/", "/no-such-thing", f"/?token={TOKEN}"])
@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", "Basic !", "Basic /w==", f"Digest {TOKEN}", TOKEN],
)
def test_without_the_token_nothing_is_told(server: WebServer, path: str, authorization: str | None) -> None:
    answer = fetch(server.address, path, {} if authorization is None else {"Authorization": authorization})
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert "wants its token" in answer.text


def test_the_password_is_the_token_and_nothing_else(server: WebServer) -> None:
    assert fetch(server.address, "/", basic("wrong")).status == 401
    assert fetch(server.address, "/", basic("", name=TOKEN)).status == 401


def test_open_routes_want_no_token(server: WebServer) -> None:
    assert fetch(server.address, "/open?a=1&b=%C3%A4", {}).text == "[('a', '1'), ('b', 'ä')]\n"


def test_head_says_how_long_the_answer_would_be(server: WebServer) -> None:
    whole, head = fetch(server.address, "/"), fetch(server.address, "/", method="HEAD")
    assert (head.status, head.text) == (200, "")
    assert head.headers["Content-Length"] == str(len(whole.text))


def test_every_answer_forbids_what_a_browser_might_do_with_it(server: WebServer) -> None:
    for path in ("/", "/no-such-thing"):
        headers = fetch(server.address, path).headers
        assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Python" not in headers["Server"]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/no-such-thing", 404, "there is something at /, /broken, /misused"),
        ("/unavailable", 503, "the store is busy\\x1b[2J"),
        ("/misused", 400, "no such column"),
        ("/broken", 500, "its log says why"),
        ("/?" + "a=1&" * 60, 400, "more than 50 things"),
    ],
)
def test_what_cannot_be_answered_is_told_in_one_line(server: WebServer, path: str, status: int, words: str) -> None:
    answer = fetch(server.address, path)
    assert answer.status == status
    assert words in answer.text
    assert "secret" not in answer.text
    assert answer.text.count("\n") == 1


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n", b"501"),
        (b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n", b"501"),
    ],
)
def test_requests_that_are_too_large_or_of_another_method_are_refused(
    server: WebServer, request_bytes: bytes, status: bytes
) -> None:
    answer = exchange(server.address, request_bytes)
    assert status in answer.splitlines()[0]
    assert b"Content-Type: text/plain" in answer


def test_clients_that_dawdle_hold_up_nobody_and_the_oldest_is_cut_for_a_new_one(server: WebServer) -> None:
    place = (server.address.host, server.address.port)
    dawdlers = [socket.create_connection(place, timeout=PATIENCE_SECONDS) for _ in range(MAX_CONNECTIONS)]
    for dawdler in dawdlers:
        dawdler.sendall(b"GET / HT")
    assert fetch(server.address, "/").status == 200
    assert dawdlers[0].recv(1) == b""
    dawdlers[-1].sendall(b"TP/1.0\r\n\r\n")
    assert dawdlers[-1].recv(12) == b"HTTP/1.0 401"
    for dawdler in dawdlers:
        dawdler.close()


def test_a_connection_that_is_cut_sends_nothing_in_the_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CertificateFolder(path=tmp_path / "tls")
    folder.init(["localhost"])
    listen, tls = Address(host="127.0.0.1", port=0), ServerCertificate(folder.server)
    server = WebServer(listen, ROUTES, tokens=Tokens(TOKEN, None), tls=tls)
    context = ssl.create_default_context(cafile=folder.ca)
    with (
        ThreadPoolExecutor(1) as thread,
        socket.create_connection((server.address.host, server.address.port), timeout=PATIENCE_SECONDS) as plain,
    ):
        shaking = thread.submit(context.wrap_socket, plain, server_hostname="localhost")
        connection, _ = server._server.get_request()
        connection.do_handshake()
        with shaking.result() as client, connection:
            # As if the connection's thread came between the steps of a cut.
            monkeypatch.setattr(socket.socket, "shutdown", lambda _socket, _how: connection.send(b"secret"))
            server._server._cut(connection)
            monkeypatch.undo()
            assert client.recv(6) == b"secret", "it did not come encrypted"
    server.stop()


def test_stopping_cuts_what_is_open() -> None:
    with served(ROUTES) as server:
        dawdler = socket.create_connection((server.address.host, server.address.port), timeout=PATIENCE_SECONDS)
        dawdler.sendall(b"GET / HT")
        assert fetch(server.address, "/").status == 200  # it has been taken by now
    assert dawdler.recv(1) == b""
    dawdler.close()


def test_many_ask_at_once_and_all_are_answered() -> None:
    together = threading.Barrier(8)

    def meet(_query: Query) -> Response:
        together.wait(PATIENCE_SECONDS)
        return text("met")

    answers: list[str] = []
    with served([Route(path="/", answer=meet)]) as server:
        threads = [threading.Thread(target=lambda: answers.append(fetch(server.address, "/").text)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == ["met\n"] * 8
