import os
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from starlette.responses import Response

from gpuagent_collector.trust.serving import CertificateFolder, ServerCertificate
from gpuagent_collector.trust.tokens import Tokens
from gpuagent_collector.web.layout import Page, Query, text
from gpuagent_collector.web.server import MAX_CONNECTIONS, WebServer
from gpuagent_common.address import Address
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.support.http import BEARER, PATIENCE_SECONDS, TOKEN, basic, exchange, fetch, served


def connected(server: WebServer) -> socket.socket:
    return socket.create_connection((server.address.host, server.address.port), timeout=PATIENCE_SECONDS)


def echo(query: Query) -> Response:
    return text(repr(sorted(query.items())))


def unavailable(_query: Query) -> Response:
    raise GpuAgentError("the store is busy\x1b[2J")


def misused(_query: Query) -> Response:
    raise MisuseError("no such column")


def broken(_query: Query) -> Response:
    raise ZeroDivisionError("secret")


ROUTES = (
    Page(path="/", answer=echo),
    Page(path="/open", answer=echo, needs_token=False),
    Page(path="/unavailable", answer=unavailable),
    Page(path="/misused", answer=misused),
    Page(path="/broken", answer=broken),
)


@pytest.fixture
def server() -> Iterator[WebServer]:
    with served(ROUTES) as server:
        yield server


@pytest.mark.parametrize(
    "headers", [BEARER, {"Authorization": f"bearer  {TOKEN} "}, basic(TOKEN), basic(TOKEN, name=""), basic(TOKEN, "ä")]
)
def test_the_token_lets_in_as_in_grpc_or_as_a_browsers_password(server: WebServer, headers: dict[str, str]) -> None:
    assert fetch(server.address, "/", headers).status == 200


@pytest.mark.parametrize(
    "authorization",
    [
        *(None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", "Basic !", "Basic /w==", f"Digest {TOKEN}", TOKEN),
        *(wrong["Authorization"] for wrong in (basic("wrong"), basic("", name=TOKEN))),
    ],
)
def test_without_the_token_nothing_is_told(server: WebServer, authorization: str | None) -> None:
    for path in ("/", "/no-such-thing", f"/?token={TOKEN}"):
        answer = fetch(server.address, path, {} if authorization is None else {"Authorization": authorization})
        assert answer.status == 401, path
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        assert "token is missing" in answer.text


def test_open_routes_need_no_token_and_every_answer_restricts_the_browser(server: WebServer) -> None:
    assert fetch(server.address, "/open?a=1&b=%C3%A4", {}).text == "[('a', '1'), ('b', 'ä')]\n"
    whole, head = fetch(server.address, "/"), fetch(server.address, "/", method="HEAD")
    assert (head.status, head.text) == (200, "")
    assert head.headers["Content-Length"] == str(len(whole.text))
    for answer in (whole, fetch(server.address, "/no-such-thing")):
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers.get_all("Server") == ["gpuagent"]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/no-such-thing", 404, "no such page; there are /, /broken, /misused"),
        ("/unavailable", 503, "the store is busy\\x1b[2J"),
        ("/misused", 400, "no such column"),
        ("/broken", 500, "its log says why"),
        ("/?" + "a=1&" * 60, 400, "more than 50 fields"),
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
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 100_000, b"405"),
        (b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n", b"400"),
    ],
)
def test_requests_that_are_too_large_or_of_another_method_are_refused(
    server: WebServer, request_bytes: bytes, status: bytes
) -> None:
    answer = exchange(server.address, request_bytes)
    assert status in answer.splitlines()[0]
    assert b"content-type: text/plain" in answer
    assert b"alert" not in answer


def test_a_client_that_still_sends_when_it_is_refused_gets_the_answer(server: WebServer) -> None:
    with connected(server) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
        assert client.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 405"
        client.sendall(b"x" * 4_000_000)
        assert b"".join(iter(lambda: client.recv(65536), b"")).startswith(b"HTTP/1.1 405")
        client.shutdown(socket.SHUT_WR)


def test_a_client_that_sends_on_and_on_is_cut(server: WebServer) -> None:
    with connected(server) as client, pytest.raises((BrokenPipeError, ConnectionResetError)):
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 100_000_000)


def test_clients_that_dawdle_hold_up_nobody_and_the_oldest_is_cut_for_a_new_one(server: WebServer) -> None:
    dawdlers = [connected(server) for _ in range(MAX_CONNECTIONS)]
    for dawdler in dawdlers:
        dawdler.sendall(b"GET / HT")
    assert fetch(server.address, "/").status == 200
    assert dawdlers[0].recv(1) == b""
    dawdlers[-1].sendall(b"TP/1.0\r\n\r\n")
    assert dawdlers[-1].recv(12) == b"HTTP/1.1 401"
    for dawdler in dawdlers:
        dawdler.close()


def test_a_connection_is_cut_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent_collector.web.server.CONNECTION_SECONDS", 0.2)
    with served(ROUTES) as server, connected(server) as dawdler:
        dawdler.sendall(b"GET / HTTP/1.1\r\nA: b")
        assert dawdler.recv(1) == b""


def test_a_connection_carries_one_request(server: WebServer) -> None:
    request = b"GET /open HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = exchange(server.address, request + request)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in answer.lower()


@contextmanager
def encrypted(folder: Path, pages: Sequence[Page]) -> Iterator[tuple[WebServer, CertificateFolder]]:
    """Serve pages over TLS."""
    certificates = CertificateFolder(path=folder / "tls")
    certificates.init(["localhost"])
    listen, tls = Address(host="127.0.0.1", port=0), ServerCertificate(certificates.server)
    server = WebServer(listen, pages, tokens=Tokens(TOKEN, None), tls=tls)
    server.start()
    try:
        yield server, certificates
    finally:
        server.stop()


def serial_number(server: WebServer, folder: CertificateFolder) -> str:
    context = ssl.create_default_context(cafile=folder.ca)
    with connected(server) as plain, context.wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(b"GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        return str((client.getpeercert() or {})["serialNumber"])


def test_a_new_certificate_is_served_and_slow_handshakes_are_cut_for_new_clients(tmp_path: Path) -> None:
    with encrypted(tmp_path, ROUTES) as (server, folder):
        first = serial_number(server, folder)
        assert serial_number(server, folder) == first
        folder.rotate(["localhost"])
        assert serial_number(server, folder) != first
        dawdlers = [connected(server) for _ in range(MAX_CONNECTIONS)]
        assert serial_number(server, folder)
        assert dawdlers[0].recv(1) == b""
        for dawdler in dawdlers:
            dawdler.close()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(None, id="half a handshake"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET /open HTTP/1.1\r\nHo", id="half a head"),
        pytest.param(b"POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nabc", id="half a body"),
        pytest.param(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n", id="an answer that is not read"),
    ],
)
def test_over_tls_a_half_request_holds_up_nobody_and_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes | None
) -> None:
    large = Page(path="/large", answer=lambda _query: text("x" * 4_000_000), needs_token=False)
    with encrypted(tmp_path, [*ROUTES, large]) as (server, folder), ExitStack() as held:
        context = ssl.create_default_context(cafile=folder.ca)
        dawdlers: list[socket.socket] = []
        for _ in range(MAX_CONNECTIONS + 8):
            dawdler = held.enter_context(connected(server))
            if sent is None:
                dawdler.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
            else:
                dawdler = held.enter_context(context.wrap_socket(dawdler, server_hostname="localhost"))
                dawdler.sendall(sent)
            dawdlers.append(dawdler)
        assert serial_number(server, folder)
        monkeypatch.setattr("gpuagent_collector.web.server.CONNECTION_SECONDS", 0.0)
        for dawdler in dawdlers:
            with suppress(OSError):  # a reset, or an end without TLS's own
                while dawdler.recv(1 << 20):
                    pass


def test_a_connection_that_is_cut_sends_nothing_in_the_clear(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_query: Query) -> Response:
        begun.set()
        go_on.wait(PATIENCE_SECONDS)
        return text("secret" * 100_000)

    with encrypted(tmp_path, [Page(path="/", answer=slow, needs_token=False)]) as (server, folder):
        context = ssl.create_default_context(cafile=folder.ca)
        with connected(server) as plain, context.wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            begun.wait(PATIENCE_SECONDS)
            server._listener.cut(older_than_seconds=0.0)
            go_on.set()
            with socket.socket(fileno=os.dup(client.fileno())) as wire:
                wire.settimeout(PATIENCE_SECONDS)
                sent = b"".join(iter(lambda: wire.recv(65536), b""))
    assert b"secret" not in sent
    assert sent[:1] in (b"", b"\x15", b"\x16", b"\x17"), "that is no TLS record"


def test_stopping_cuts_what_is_open() -> None:
    with served(ROUTES) as server:
        dawdler = connected(server)
        dawdler.sendall(b"GET / HT")
        assert fetch(server.address, "/").status == 200  # it has been taken by now
    assert dawdler.recv(1) == b""
    dawdler.close()


def test_many_ask_at_once_and_all_are_answered() -> None:
    together = threading.Barrier(8)

    def meet(_query: Query) -> Response:
        together.wait(PATIENCE_SECONDS)
        return text("met")

    with served([Page(path="/", answer=meet)]) as server, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda path: fetch(server.address, path).text, ["/"] * 8))
    assert answers == ["met\n"] * 8
