"""The whole page: one file with its style and script; plotly's is beside it or inside, and nothing else is loaded."""

import base64
import hashlib
from functools import lru_cache
from pathlib import Path

from markupsafe import Markup

from gpuagent_collector import __version__
from gpuagent_collector.compare.comparison import Comparison, Request
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.report.chapters import CHAPTERS
from gpuagent_collector.report.pieces import TEMPLATES, anchor_of
from gpuagent_collector.report.study import MOST_BLOCKS, Report, make_report
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.times import utc_now
from gpuagent_common.text import counted

_ASSETS = Path(__file__).parent / "assets"


def render_served(ask: Ask, request: Request, *, source: str) -> str:
    """Return the page of a request, which leads back to the collector's others; `source` names the store for people.

    Raises:
        MisuseError: a facet, value, workload, experiment or metric is unknown.
        GpuAgentError: there is nothing to compare.
    """
    return render(make_report(ask, request, source=source, now=utc_now()), is_served=True)


def render(report: Report, *, library: str | None = None, is_served: bool = False) -> str:
    """Return the page as HTML.

    `library` is the name of plotly's script beside the page; None: the script is in the page.
    """
    layout = report.comparison.layout
    runs = counted(len(layout.runs), "run")
    # The parts that a chapter has of each workload or setting, for the table of contents.
    blocks = layout.blocks[:MOST_BLOCKS] if layout.blocks[1:] else ()
    contents = []
    for chapter in CHAPTERS:
        pieces = [piece for piece in chapter.write(report) if piece]
        named = [(anchor_of(chapter.anchor, at), tell_apart(block, blocks)) for at, block in enumerate(blocks)]
        parts = [each for each in named if any(f'id="{each[0]}"' in piece for piece in pieces)]
        contents += [(chapter, pieces, parts)] if pieces else []
    return TEMPLATES.get_template("page.html").render(
        title=title_of(report.comparison),
        subtitle=f"{runs} · {report.source} · {report.written_at:%Y-%m-%d %H:%M} UTC · gpuagent {__version__}",
        version=__version__,
        policy=Markup(policy(has_library=library is None)),  # noqa: S704 - hashes and words of ours, as these files are ours
        style=Markup(_asset("report.css")),  # noqa: S704
        library=library,
        is_served=is_served,
        scripts=[Markup(script) for script in ([] if library else [plotly_script()])] + [Markup(own_script())],  # noqa: S704
        chapters=contents,
    )


# Characters of the sides' names, which the table has too.
_LONG_TITLE = 80


def title_of(comparison: Comparison) -> str:
    """Return the title of a comparison: mnist by platform: satori, openshift."""
    layout = comparison.layout
    runs = comparison.layout.runs
    if len(runs) == 1:
        return f"Run {runs[0].run_id}: {runs[0].workload} on {runs[0].platform or 'an unknown platform'}"
    workloads = list(dict.fromkeys(block.workload for block in layout.blocks))
    what = ", ".join(workloads) if len(workloads) <= 3 else f"{len(workloads)} workloads"
    if len(layout.sides) == 1:
        return f"{what} {layout.facet.where(layout.sides[0])}"
    sides = ", ".join(layout.sides)
    if len(sides) > _LONG_TITLE:
        sides = f"{len(layout.sides)} {layout.facet.plural}"
    return f"{what} by {layout.facet.spoken}: {sides}"


@lru_cache
def policy(*, has_library: bool = True) -> str:
    """Return the Content-Security-Policy: these two scripts and nothing else, from nowhere and to nowhere.

    Without the library inside, scripts of the page's own folder are allowed: no hash of a file counts in all browsers.

    plotly writes style elements and attributes while it draws, which no hash can name. With no source allowed for
    images, fonts and connections a style can load nothing either.
    """
    inside = [own_script(), *([plotly_script()] if has_library else [])]
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in inside)
    scripts = " ".join([*(f"'sha256-{each}'" for each in hashes), *([] if has_library else ["'self'", "file:"])])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


@lru_cache(maxsize=1)
def plotly_script() -> str:
    """Return plotly's script."""
    # Takes a tenth of a second, which a collector that nobody asks for a report need not spend.
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def library_name() -> str:
    """Return the name of the file for plotly's script: another version is another file."""
    return f"plotly-{hashlib.sha256(plotly_script().encode()).hexdigest()[:12]}.js"


def own_script() -> str:
    """Return the page's own script."""
    return _asset("report.js")


@lru_cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
