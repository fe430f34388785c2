"""The whole page: one file with its style, its script and plotly's, that may load nothing and send nothing."""

import base64
import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from gpuagent_collector import __version__
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.output.html import element, escaped
from gpuagent_collector.report.chapters import CHAPTERS, Chapter
from gpuagent_collector.report.study import Report

_ASSETS = Path(__file__).parent / "assets"


def render(report: Report) -> str:
    """Return the page as HTML."""
    chapters = [(chapter, "".join(chapter.write(report))) for chapter in CHAPTERS]
    filled = [(chapter, inner) for chapter, inner in chapters if inner]
    title = title_of(report.comparison)
    return (
        f'<!doctype html><html lang="en"><head>{_head(title)}</head><body>'
        f'<a class="skip" href="#main">Skip to the answer</a><div class="page">'
        f"{_header(title, report)}{_contents([chapter for chapter, _ in filled])}"
        f'<main id="main" tabindex="-1">{"".join(_sections(filled))}</main>'
        f"</div><script>{_plotly()}</script><script>{_asset('report.js')}</script></body></html>\n"
    )


def title_of(comparison: Comparison) -> str:
    """Return what is compared: mnist by platform: satori, openshift."""
    workloads = list(dict.fromkeys(block.workload for block in comparison.layout.blocks))
    what = ", ".join(workloads) if len(workloads) <= 3 else f"{len(workloads)} workloads"
    return f"{what} by {comparison.layout.facet.spoken}: {', '.join(comparison.layout.sides)}"


@lru_cache(maxsize=1)
def policy() -> str:
    """Return the Content-Security-Policy: these two scripts and nothing else, from nowhere and to nowhere.

    plotly writes style elements and attributes while it draws, which no hash can name. With no source allowed for
    images, fonts and connections a style can load nothing either.
    """
    scripts = " ".join(f"'sha256-{_sha256(script)}'" for script in (_plotly(), _asset("report.js")))
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _head(title: str) -> str:
    return (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="generator" content="gpuagent {__version__}">'
        f'<title>{escaped(title)}</title><link rel="icon" href="data:,"><style>{_asset("report.css")}</style>'
    )


def _header(title: str, report: Report) -> str:
    layout = report.comparison.layout
    runs = sum(len(cell.runs) for block in layout.blocks for cell in block.cells)
    told = f"{runs:,} runs · {report.source} · {report.written_at:%Y-%m-%d %H:%M} UTC · gpuagent {__version__}"
    script = element("p", "Charts need JavaScript; all else does not.")
    return element(
        "header", element("h1", escaped(title)), element("p", escaped(told)), f"<noscript>{script}</noscript>"
    )


def _contents(chapters: list[Chapter]) -> str:
    items = (element("li", element("a", chapter.title, href=f"#{chapter.anchor}")) for chapter in chapters)
    return element("nav", element("ul", *items), aria_label="Contents")


def _sections(chapters: list[tuple[Chapter, str]]) -> Iterator[str]:
    for chapter, inner in chapters:
        heading = element("h2", chapter.title, id=f"{chapter.anchor}-heading")
        yield element("section", heading, inner, id=chapter.anchor, aria_labelledby=f"{chapter.anchor}-heading")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@lru_cache(maxsize=1)
def _plotly() -> str:
    # Takes a tenth of a second, which a collector that nobody asks for a report need not spend.
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@lru_cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
