"""What a route is given, and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"

# What stands behind the `?` of an address; of a name that is there twice, the last.
Query = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer.

    Attributes:
        status: HTTP's status code.
        content_type: media type of `body`, with its character set.
        body: the whole of it; what is served here fits into memory.
        policy: Content-Security-Policy; by default a browser may load, run and show nothing.
        headers: further ones.
    """

    status: int = 200
    content_type: str = TEXT
    body: bytes
    policy: str = "default-src 'none'; frame-ancestors 'none'"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What answers at a path.

    Attributes:
        path: exactly this one.
        answer: makes the answer; it is called in the thread of the request, several at once. A GpuAgentError becomes
            503 with its text, a MisuseError 400.
        needs_token: whether only those who have the token are answered.
    """

    path: str
    answer: Callable[[Query], Response]
    needs_token: bool = True


def text(words: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of one line."""
    return Response(status=status, body=f"{words}\n".encode(), headers=headers or {})
