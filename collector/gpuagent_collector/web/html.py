"""The shell of the collector's pages."""

import base64
import hashlib
from collections.abc import Iterable

from starlette.responses import Response

from gpuagent_collector.output.html import escaped
from gpuagent_collector.web.answers import html

STYLE = """
:root { color-scheme: light dark; --text: #1a1d21; --quiet: #59626d; --back: #ffffff; --line: #d5dae0; --head: #f1f3f5;
  --red: #b3261e; --yellow: #7a5600; --green: #1b6e2d; --cyan: #00687a; --magenta: #8a2d84; --link: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7eb; --quiet: #a3acb8; --back: #14171b; --line: #343b44;
  --head: #1f242b; --red: #ff9a91; --yellow: #f0c04c; --green: #7fd48d; --cyan: #6fd3e3; --magenta: #e69ae0;
  --link: #9cc2ff; } }
body { margin: 0 auto; max-width: 100rem; padding: 1rem 1.5rem 3rem; color: var(--text); background: var(--back);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
p { margin: .3rem 0; } .quiet, .dim { color: var(--quiet); } a { color: var(--link); }
form { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin-top: .8rem; }
input, button { font: inherit; color: inherit; background: var(--head); border: 1px solid var(--line);
  border-radius: 4px; padding: .2rem .5rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 4px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: left; white-space: nowrap; } td { border-top: 1px solid var(--line); }
th { background: var(--head); font-weight: 600; } th a { color: inherit; } .figure { text-align: right; }
.red { color: var(--red); } .yellow { color: var(--yellow); } .green { color: var(--green); }
.cyan { color: var(--cyan); } .magenta { color: var(--magenta); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
@media (max-width: 40rem) { body { padding: .7rem; } th, td { padding: .2rem .45rem; } }
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

# No scripts, and nothing from anywhere: the one style sheet is named by its hash, the empty icon is in the page.
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


def page(title: str, body: Iterable[str], *, refresh_seconds: int | None = None) -> Response:
    """Return a whole page around pieces of HTML; with `refresh_seconds` the browser loads it again and again."""
    refresh = f'<meta http-equiv="refresh" content="{refresh_seconds}">' if refresh_seconds else ""
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'{refresh}<title>{escaped(title)}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head>'
        f"<body>{''.join(body)}</body></html>\n"
    )
    return html(text, policy=_POLICY)
