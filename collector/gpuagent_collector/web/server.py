"""An HTTP server that nobody can hold up: so many connections at once, so many seconds for each."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qsl

from gpuagent_collector.output.text import harmless
from gpuagent_collector.trust import audit
from gpuagent_collector.trust.caller import UNREADABLE, Caller, Tokens
from gpuagent_collector.trust.reach import Reach
from gpuagent_collector.trust.scopes import Scope
from gpuagent_collector.trust.server_certificate import ServerCertificate
from gpuagent_collector.web.auth import CHALLENGE, given_token
from gpuagent_collector.web.exchange import Query, Response, Route, text
from gpuagent_common.address import Address, check_free
from gpuagent_common.errors import GpuAgentError, MisuseError

_LOG = logging.getLogger(__name__)

# When one more comes, the oldest is cut: whoever dawdles holds up nobody.
MAX_CONNECTIONS = 32

# A connection that is older is cut, however busy it is: it bears one request.
CONNECTION_SECONDS = 60.0

_MAX_FIELDS = 50

# Of what somebody was refused, in the record.
_MAX_PATH_CHARACTERS = 200

_REFUSAL = (
    "this collector wants its token: as `Authorization: Bearer TOKEN`, or as the password of a browser's login. "
    "It lies in the file that `collector serve` named"
)

# On every answer: nothing is kept, told to other sites, guessed, or embedded.
_SAFETY = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}

# Makes the routes for who is shown a part of the store only.
Limited = Callable[[Reach], Sequence[Route]]


class WebServer:
    """Serves routes in threads of its own, apart from the event loop that serves agents."""

    def __init__(
        self,
        listen: Address,
        routes: Sequence[Route],
        *,
        tokens: Tokens,
        limited: Limited | None = None,
        tls: ServerCertificate | None = None,
    ) -> None:
        """Open the port; nothing is answered before `start`.

        Without `limited`, who is shown a part of the store only is refused.

        Raises:
            GpuAgentError: it cannot listen there.
        """
        check_free(listen, option="--http")
        self._server = _BoundedServer(listen, _Routes(routes, limited), tokens, tls)
        # Where it listens.
        self.address = listen.at(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="web", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing new, and cut what is open."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.cut(older_than_seconds=0.0)
        self._server.server_close()


class _Routes:
    """What is served to whom, by path."""

    def __init__(self, routes: Sequence[Route], limited: Limited | None) -> None:
        self._all = {route.path: route for route in routes}
        self.open = {path: route for path, route in self._all.items() if not route.needs_token}
        self._limited = limited
        # A collector has no more of them than it made tokens for.
        self._by_reach: dict[Reach, Mapping[str, Route]] = {}

    def of(self, reach: Reach | None) -> Mapping[str, Route] | None:
        """Return what is served to who has this reach; None: nothing is."""
        if reach is None:
            return self._all
        if self._limited is None:
            return None
        if reach not in self._by_reach:
            self._by_reach[reach] = {route.path: route for route in self._limited(reach)}
        return self._by_reach[reach]


class _BoundedServer(ThreadingHTTPServer):
    """A thread for each connection, of which MAX_CONNECTIONS may be open."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    allow_reuse_port = False

    def __init__(self, listen: Address, routes: "_Routes", tokens: Tokens, tls: ServerCertificate | None) -> None:
        self.address_family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        self.routes = routes
        self.tokens = tokens
        self._tls = tls
        self._context = tls.ssl_context() if tls else None
        # Connection → when it came, the oldest first.
        self._open: dict[Any, float] = {}
        super().__init__((listen.host, listen.port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking the name service what this host is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """Take a connection; its handshake is made when it is first read from, in a thread of its own."""
        connection, address = super().get_request()
        if self._tls is None or self._context is None:
            return connection, address
        self._tls.renew(self._context)
        # Without a limit whoever says nothing would hold its thread until the connection is cut.
        connection.settimeout(CONNECTION_SECONDS)
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own."""
        # A copy, which is one step: threads that are done take theirs out meanwhile.
        connections = tuple(self._open)
        if len(connections) >= MAX_CONNECTIONS:
            self._cut(connections[0])
        self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that is done with."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut connections whose time is over; the server calls this twice a second."""
        self.cut(older_than_seconds=CONNECTION_SECONDS)

    def cut(self, *, older_than_seconds: float) -> None:
        """Cut connections that are older."""
        now = time.monotonic()
        for request, since in tuple(self._open.items()):
            if now - since >= older_than_seconds:
                self._cut(request)

    def _cut(self, request: Any) -> None:
        """Make whatever its thread waits for fail; the thread then closes it."""
        self._open.pop(request, None)
        with suppress(OSError):
            # An SSLSocket's own shutdown drops the encryption first: what its thread sends then would go in the clear.
            socket.socket.shutdown(request, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong outside a route: mostly clients that went away."""
        _LOG.debug("the connection of %s failed: %s", client_address, request, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request. The protocol is HTTP/1.0: a connection ends with its answer."""

    server: _BoundedServer
    timeout = CONNECTION_SECONDS

    def do_GET(self) -> None:
        """Answer with the body."""
        self._send(self._answer(), with_body=True)

    def do_HEAD(self) -> None:
        """Answer without it."""
        self._send(self._answer(), with_body=False)

    def version_string(self) -> str:
        """Return what the answers say of the server: not which version of what."""
        return "gpuagent"

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is none: too long, of another method, or nonsense."""
        self.close_connection = True
        self._send(text(message or explain or "bad request", status=code), with_body=True)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Log a request for whoever wants to see all."""
        _LOG.debug("%s: %s", self.address_string(), harmless(format % args))

    def _answer(self) -> Response:
        path, _, query = self.path.partition("?")
        route = self.server.routes.open.get(path)
        if route is not None:
            return _called(route, query)
        try:
            reader = self.server.tokens.holder(given_token(self.headers.get("Authorization")))
        except GpuAgentError as error:
            _LOG.warning("tokens other than the owner's open nothing: %s", error)
            return text(UNREADABLE, status=503)
        response = self._answer_to(reader, path, query)
        who, peer = reader.name if reader else None, str(self.client_address[0])
        if response.status in (401, 403):
            audit.refused(who=who, peer=peer, path=path[:_MAX_PATH_CHARACTERS], status=response.status)
        else:
            audit.note("page", who=who, peer=peer, path=path, status=response.status)
        return response

    def _answer_to(self, reader: Caller | None, path: str, query: str) -> Response:
        if reader is None:
            return text(_REFUSAL, status=401, headers={"WWW-Authenticate": CHALLENGE})
        if reader.scope is Scope.AGENT:
            return text("this token writes what a node measures, and does not read", status=403)
        routes = self.server.routes.of(reader.reach)
        if routes is None:
            return text("this is not for tokens that are limited to platforms or labels", status=403)
        route = routes.get(path)
        if route is None:
            paths = ", ".join(sorted(routes))
            return text(f"there is nothing here; there is something at {paths}", status=404)
        return _called(route, query)

    def _send(self, response: Response, *, with_body: bool) -> None:
        self.send_response(response.status)
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            "Content-Security-Policy": response.policy,
        }
        for name, value in (headers | _SAFETY | dict(response.headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(response.body)


def _called(route: Route, query: str) -> Response:
    try:
        return route.answer(_parsed(query))
    except MisuseError as error:
        return text(harmless(str(error)), status=400)
    except GpuAgentError as error:
        return text(harmless(str(error)), status=503)
    except Exception:  # noqa: BLE001 - whatever a page does wrong, others are served
        _LOG.exception("%s failed", route.path)
        return text("the collector failed here; its log says why", status=500)


def _parsed(query: str) -> Query:
    try:
        return dict(parse_qsl(query, max_num_fields=_MAX_FIELDS))
    except ValueError as error:
        raise MisuseError(f"the address asks for more than {_MAX_FIELDS} things") from error
