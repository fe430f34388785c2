"""An HTTP server that no client can block: bounds on connections, on their time, and on the size of a request."""

import asyncio
import base64
import binascii
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuagent_collector.trust import audit
from gpuagent_collector.trust.serving import ServerCertificate
from gpuagent_collector.trust.tokens import UNREADABLE, Caller, Reach, Scope, Tokens
from gpuagent_collector.web.layout import Page, text
from gpuagent_common.address import Address, check_free
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import harmless

_LOG = logging.getLogger(__name__)

# One more cuts the oldest, so that slow clients block nobody.
MAX_CONNECTIONS = 32

# An older connection is cut, however busy: it carries one request.
CONNECTION_SECONDS = 60.0

# What a client still sends when it has its answer is read and dropped, up to both: a close before would reset the
# connection, and the answer be lost on its way.
_LINGER_SECONDS = 5.0
_LINGER_BYTES = 8 << 20

# Of the request line and all headers together.
MAX_HEAD_BYTES = 64 * 1024

_MAX_FIELDS = 50

# Of a path in the audit log.
_MAX_PATH_CHARACTERS = 200

_REFUSAL = (
    "a token is missing: send `Authorization: Bearer TOKEN`, or the token as password of a browser's login. "
    "`collector serve` prints which file holds it"
)

# A browser asks for a password and keeps it for this origin; the token is never part of an address.
_CHALLENGE = 'Basic realm="gpuagent collector: any name, the token as password", charset="UTF-8"'

# On every answer: not cached, not guessed at, not embedded, not named to other sites; no version; one request only.
_HEADERS = [
    ("Server", "gpuagent"),
    ("Connection", "close"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]

# Returns the pages for a caller to whom only a part of the store is shown.
Limited = Callable[[Reach], Sequence[Page]]


class WebServer:
    """Serves pages in threads of its own, apart from the event loop that serves agents."""

    def __init__(
        self,
        listen: Address,
        pages: Sequence[Page],
        *,
        tokens: Tokens,
        limited: Limited | None = None,
        tls: ServerCertificate | None = None,
    ) -> None:
        """Open the port; nothing is answered before `start`.

        Without `limited`, callers to whom only a part of the store is shown are refused. Raises GpuAgentError: it
        cannot listen there.
        """
        check_free(listen, option="--http")
        self._listener = _Listener(listen)
        # The address with the port that was chosen.
        self.address = listen.at(self._listener.getsockname()[1])
        self._site = _Site(pages, limited, tokens)
        config = uvicorn.Config(
            Starlette(routes=[Route("/{path:path}", self._site.serve)]),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,  # the audit log names the real peer
            server_header=False,
            headers=_HEADERS,
            backlog=64,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        config.load()
        if tls is not None:
            config.ssl = tls.ssl_context()
            self._listener.before_handshake = partial(tls.renew, config.ssl)
        self._server = uvicorn.Server(config)
        # uvicorn installs its signal handlers in the main thread only, so here it leaves the collector's alone.
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Accept nothing new, and cut what is open."""
        self._server.should_exit = self._server.force_exit = True
        self._listener.cut(older_than_seconds=0.0)
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()
        self._site.close()

    def _run(self) -> None:
        async def cut_old() -> None:
            while True:
                await asyncio.sleep(0.5)
                self._listener.cut(older_than_seconds=CONNECTION_SECONDS)

        async def serve() -> None:
            cutting = asyncio.create_task(cut_old())
            await self._server.serve(sockets=[self._listener])
            cutting.cancel()

        asyncio.run(serve())


class _Listener(socket.socket):
    """A listening socket that bounds its connections from the moment they are accepted, TLS handshakes included."""

    def __init__(self, listen: Address) -> None:
        super().__init__(socket.AF_INET6 if ":" in listen.host else socket.AF_INET, socket.SOCK_STREAM)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind((listen.host, listen.port))
        self.listen(64)
        self.before_handshake: Callable[[], None] = lambda: None
        # Connection → when it came, the oldest first.
        self._open: dict[_Connection, float] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; one too many cuts the oldest."""
        accepted, address = super().accept()
        connection = _Connection(fileno=accepted.detach())
        self.before_handshake()
        self._open = {each: since for each, since in self._open.items() if each.fileno() >= 0}
        if len(self._open) >= MAX_CONNECTIONS:
            self._cut(next(iter(self._open)))
        self._open[connection] = time.monotonic()
        return connection, address

    def cut(self, *, older_than_seconds: float) -> None:
        """Cut connections that are older."""
        now = time.monotonic()
        for connection, since in tuple(self._open.items()):
            if now - since >= older_than_seconds:
                self._cut(connection)

    def _cut(self, connection: "_Connection") -> None:
        """End a connection below TLS: its transport closes it, and sends nothing more."""
        self._open.pop(connection, None)
        connection.end()


class _Connection(socket.socket):
    """A connection that ends when the client's side does, or soon after its own."""

    _left_bytes = _LINGER_BYTES

    def end(self) -> None:
        """End both sides: whoever waits for one of them goes on."""
        self._left_bytes = 0
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the sending side, as its transport is done with it, and drop what still comes."""
        try:
            loop = asyncio.get_running_loop()
            self.shutdown(socket.SHUT_WR)
        except (OSError, RuntimeError):
            self._left_bytes = 0
        if self._left_bytes <= 0:
            super().close()
            return
        loop.add_reader(self, self._drop, loop)
        loop.call_later(_LINGER_SECONDS, self._close, loop)

    def _drop(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            read_bytes = len(self.recv(1 << 16))
        except BlockingIOError:
            return
        except OSError:
            read_bytes = 0
        self._left_bytes -= read_bytes
        if not read_bytes or self._left_bytes <= 0:
            self._close(loop)

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.fileno() >= 0:
            loop.remove_reader(self)
            super().close()


class _Site:
    """The pages, by caller and path."""

    def __init__(self, pages: Sequence[Page], limited: Limited | None, tokens: Tokens) -> None:
        self._all = {page.path: page for page in pages}
        self._limited = limited
        self._tokens = tokens
        # A collector has no more of them than tokens.
        self._by_reach: dict[Reach, dict[str, Page]] = {}
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, "web")

    def close(self) -> None:
        """Start no more answers; those that are under way are left behind."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def serve(self, request: Request) -> Response:
        """Answer a request, in a thread because pages wait for the store."""
        query = request.scope["query_string"].decode("latin-1")
        given = request.headers.getlist("Authorization")
        authorization = given[0] if len(given) == 1 else ""  # as over gRPC
        peer = request.client.host if request.client else ""
        # Of the scope, where it is decoded whatever characters a name contains.
        answer = partial(self._answer, request.scope["path"], query, authorization, peer)
        return await asyncio.get_running_loop().run_in_executor(self._threads, answer)

    def _answer(self, path: str, query: str, authorization: str, peer: str) -> Response:
        page = self._all.get(path)
        if page is not None and not page.needs_token:
            return _answer_page(page, query)
        try:
            caller = self._tokens.holder(given_token(authorization))
        except GpuAgentError as error:
            _LOG.warning("only the owner's token is accepted: %s", error)
            return text(UNREADABLE, status=503)
        response = self._answer_caller(caller, path, query)
        who, status = caller.name if caller else None, response.status_code
        if status in (401, 403):
            audit.refused(who=who, peer=peer, path=path[:_MAX_PATH_CHARACTERS], status=status)
        else:
            audit.note("page", who=who, peer=peer, path=f"{path}?{query}" if query else path, status=status)
        return response

    def _answer_caller(self, caller: Caller | None, path: str, query: str) -> Response:
        if caller is None:
            return text(_REFUSAL, status=401, headers={"WWW-Authenticate": _CHALLENGE})
        if caller.scope is Scope.AGENT:
            return text("an agent's token may write but not read; use a viewer's token", status=403)
        pages = self._all
        if caller.reach is not None:
            if self._limited is None:
                return text("tokens that are limited to platforms or labels cannot read here", status=403)
            if caller.reach not in self._by_reach:
                self._by_reach[caller.reach] = {page.path: page for page in self._limited(caller.reach)}
            pages = self._by_reach[caller.reach]
        above, slash, name = path.removeprefix("/").partition("/")
        page = pages.get(f"/{above}/") if slash and name else pages.get(path)
        if page is None or (page.path.endswith("/") and not name and path != "/"):
            return text(f"no such page; there are {', '.join(sorted(pages))}", status=404)
        return _answer_page(page, query, name or None)


def _answer_page(page: Page, query: str, name: str | None = None) -> Response:
    try:
        try:
            fields = dict(parse_qsl(query, max_num_fields=_MAX_FIELDS))
        except ValueError:
            raise MisuseError(f"the address has more than {_MAX_FIELDS} fields; remove some") from None
        return page.answer(fields if name is None else {**fields, "name": name})
    except MisuseError as error:
        return text(harmless(str(error)), status=400)
    except GpuAgentError as error:
        return text(harmless(str(error)), status=503)
    except Exception:  # noqa: BLE001 - one broken page must not end the server
        _LOG.exception("%s failed", page.path)
        return text("the collector failed here; its log says why", status=500)


def given_token(authorization: str) -> str:
    """Return the token of an Authorization header: that of `Bearer`, or the password of `Basic`; empty without one."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
