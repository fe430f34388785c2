"""The templates, the style sheet and the policy of pages without scripts."""

import base64
import hashlib
from pathlib import Path

from markupsafe import Markup
from starlette.responses import Response

from gpuagent_collector.present.html import templates
from gpuagent_collector.web.answers import Query, html
from gpuagent_common.errors import MisuseError

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


def whole_number(query: Query, name: str, *, unit: str, most: int) -> int | None:
    """Return a field of the address; None: it is missing.

    Raises:
        MisuseError: it is no whole number from 1 to `most`.
    """
    given = query.get(name)
    # Python makes no number of thousands of digits.
    if given is not None and not (given.isdecimal() and len(given) <= len(str(most)) and 1 <= int(given) <= most):
        raise MisuseError(f"{name} takes whole {unit} from 1 to {most}")
    return None if given is None else int(given)
