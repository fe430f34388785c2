"""Routes of the web server and their answers, and the templates, style sheet and policy of pages without scripts."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from markupsafe import Markup
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from gpuagent_collector.present.html import templates
from gpuagent_common.errors import MisuseError

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


_FOLDER = Path(__file__).parent / "templates"
_TEMPLATES = templates(_FOLDER)
_STYLE = (_FOLDER / "site.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

# No scripts, and nothing from elsewhere: the one style sheet is named by its hash, the empty icon is in the page.
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

# Of a page that refreshes itself.
REFRESH_SECONDS = 5


def render(template: str, **values: object) -> Response:
    """Return a page."""
    style = Markup(_STYLE)  # noqa: S704 - a file of ours
    return html(_TEMPLATES.get_template(template).render(style=style, **values), policy=_POLICY)


def check_fields(query: Query, what: str, fields: Sequence[str], *, has_name: bool = False) -> None:
    """Check that an address has no other fields than these; with `has_name`, the page's name is one too.

    Raises MisuseError: it has; names it, and what `what` takes.
    """
    for field in query:
        if field not in fields and not (has_name and field == "name"):
            takes = f"{', '.join(fields)}, and nothing" if fields else "nothing"
            raise MisuseError(f"{what} takes {takes} named {field[:40]}")


Choice = TypeVar("Choice", bound=Enum)


def one_of(query: Query, name: str, kind: type[Choice]) -> Choice | None:
    """Return a field of the address that is one of an enumeration's values; None: it is missing.

    Raises MisuseError: it is none of them.
    """
    try:
        return kind(query[name]) if query.get(name) else None
    except ValueError:
        raise MisuseError(f"{name} is one of {', '.join(each.value for each in kind)}") from None


def whole_number(query: Query, name: str, *, unit: str, most: int) -> int | None:
    """Return a field of the address; None: it is missing.

    Raises MisuseError: it is no whole number from 1 to `most`.
    """
    given = query.get(name)
    # Python makes no number of thousands of digits.
    if given is not None and not (given.isdecimal() and len(given) <= len(str(most)) and 1 <= int(given) <= most):
        raise MisuseError(f"{name} takes whole {unit} from 1 to {most}")
    return None if given is None else int(given)
