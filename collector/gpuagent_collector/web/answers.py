"""Routes of the web server, and their answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.responses import HTMLResponse, PlainTextResponse, Response

# The fields after the `?` of an address; of a name that is there twice, the last.
Query = Mapping[str, str]

# By default a browser may load, run and show nothing.
NO_CONTENT = "default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A route.

    Attributes:
        path: exactly this one; with a / at its end, all below it, whose names the query then has as `name`.
        answer: returns the answer; called in a thread, several at once. A GpuAgentError becomes 503 with its text, a
            MisuseError 400.
        needs_token: whether a token is required.
    """

    path: str
    answer: Callable[[Query], Response]
    needs_token: bool = True


def text(words: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of one line."""
    return PlainTextResponse(
        f"{words}\n", status_code=status, headers={"Content-Security-Policy": NO_CONTENT, **(headers or {})}
    )


def html(page: str, *, policy: str) -> Response:
    """Return a page with its Content-Security-Policy."""
    return HTMLResponse(page, headers={"Content-Security-Policy": policy})
