"""`/`: nodes, GPUs and runs as they are now, for a browser."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import Response

from gpuagent_collector.output.html import element, escaped
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.watch.columns import GPU_COLUMNS, NODE_COLUMNS, RUN_COLUMNS, Column, Row
from gpuagent_collector.watch.snapshot import Snapshot
from gpuagent_collector.watch.view import Scope, View, select, summary
from gpuagent_collector.web.answers import Query
from gpuagent_collector.web.html import page
from gpuagent_collector.web.reports import form
from gpuagent_common.errors import MisuseError

# Rows of a table; of more, nobody would read all, and a filter finds the others.
MAX_ROWS = 200

_REFRESH_SECONDS = 5
_LONGEST_REFRESH_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the address asks for."""

    view: View
    refresh_seconds: int | None

    @classmethod
    def of(cls, query: Query) -> "_Asked":
        seconds = query.get("refresh")
        # Of thousands of digits Python makes no number.
        if seconds is not None and not (
            seconds.isdecimal() and len(seconds) < 5 and 1 <= int(seconds) <= _LONGEST_REFRESH_SECONDS
        ):
            raise MisuseError(f"refresh takes whole seconds from 1 to {_LONGEST_REFRESH_SECONDS}")
        view = View(sort_by=query.get("sort"), reverse=query.get("order") == "reversed", words=query.get("filter", ""))
        return cls(view=view, refresh_seconds=None if seconds is None else int(seconds))

    def address(self, **changes: str | None) -> str:
        """Return the address of this page with some things asked otherwise; None: not at all."""
        now = {
            "filter": self.view.words or None,
            "sort": self.view.sort_by,
            "order": "reversed" if self.view.reverse else None,
            "refresh": None if self.refresh_seconds is None else str(self.refresh_seconds),
        }
        fields = {name: value for name, value in (now | changes).items() if value is not None}
        return f"/?{urlencode(fields)}" if fields else "/"


class Overview:
    """Answers with the page."""

    def __init__(self, snapshot: Callable[[], Snapshot], *, source: str) -> None:
        """Take what tells how things stand, and the store's name."""
        self._snapshot = snapshot
        self._source = source

    def answer(self, query: Query) -> Response:
        """Return the page.

        Raises:
            MisuseError: the address asks for something that is not there.
            GpuAgentError: the store cannot be read.
        """
        asked = _Asked.of(query)
        snapshot = self._snapshot()
        selection = select(snapshot, asked.view)
        body = (
            *_head(snapshot, asked, self._source),
            *_section("Nodes", NODE_COLUMNS, selection[Scope.NODES].rows, asked),
            *_section("Runs", RUN_COLUMNS, selection[Scope.RUNS].rows, asked),
            *_section("GPUs", GPU_COLUMNS, selection[Scope.GPUS].rows, asked),
            _notes(),
        )
        return page("gpuagent collector", body, refresh_seconds=asked.refresh_seconds)


def _head(snapshot: Snapshot, asked: _Asked, source: str) -> Iterator[str]:
    yield element("h1", "gpuagent collector")
    yield element("p", " · ".join(element("span", escaped(text), class_=style) for text, style in summary(snapshot)))
    yield element("p", escaped(f"{snapshot.taken_at:%Y-%m-%d %H:%M:%S} UTC · {source}"), class_="quiet")
    yield _form(asked)
    yield form()


def _form(asked: _Asked) -> str:
    kept = {"sort": asked.view.sort_by, "order": "reversed" if asked.view.reverse else None}
    hidden = (f'<input type="hidden" name="{name}" value="{escaped(value)}">' for name, value in kept.items() if value)
    toggled = None if asked.refresh_seconds else str(_REFRESH_SECONDS)
    words = f"refresh every {_REFRESH_SECONDS} s" if toggled else f"stop refreshing every {asked.refresh_seconds} s"
    return element(
        "form",
        element("label", "Filter", for_="filter"),
        f'<input id="filter" name="filter" type="search" value="{escaped(asked.view.words)}">',
        *hidden,
        element("button", "Show"),
        element("a", words, href=asked.address(refresh=toggled)),
        element("a", "metrics", href="/metrics"),
        action="/",
        role="search",
    )


def _section(title: str, columns: Sequence[Column[Row]], rows: Sequence[Row], asked: _Asked) -> Iterator[str]:
    yield element("h2", escaped(f"{title} ({len(rows):,})"))
    if rows:
        shown = rows[:MAX_ROWS]
        filled = [column for column in columns if any(column.show(row) for row in shown)]
        table = element(
            "table",
            element("thead", element("tr", *(_title(column, asked) for column in filled))),
            element("tbody", *(element("tr", *(_cell(column, row) for column in filled)) for row in shown)),
        )
        yield element("div", table, class_="scroll", tabindex="0", role="region", aria_label=title)
    if len(rows) > MAX_ROWS:
        yield element("p", f"The first {MAX_ROWS}; a filter finds the others.", class_="quiet")


def _title(column: Column[Row], asked: _Asked) -> str:
    chosen = asked.view.sort_by == column.title
    order = "reversed" if chosen and not asked.view.reverse else None
    link = element("a", escaped(column.title), href=asked.address(sort=column.title, order=order))
    return element("th", link, scope="col", class_=_alignment(column), aria_sort=_direction(column, asked))


def _direction(column: Column[Row], asked: _Asked) -> str | None:
    if asked.view.sort_by != column.title:
        return None
    return "descending" if column.is_figure is not asked.view.reverse else "ascending"


def _cell(column: Column[Row], row: Row) -> str:
    text = column.show(row)
    style = "dim" if text is None else column.style and column.style(row)
    classes = " ".join(name for name in (_alignment(column), style) if name)
    return element("td", escaped(ABSENT if text is None else text), class_=classes or None)


def _alignment(column: Column[Row]) -> str | None:
    return "figure" if column.is_figure else None


def _notes() -> str:
    return element(
        "p",
        "GPU is the share of time in which any kernel ran; SM is how many of the multiprocessors were busy, where the "
        "GPU tells. A node without a sample in the last 30 s is silent. Nodes not heard of for an hour, and runs that "
        "ended before that, are not shown.",
        class_="quiet",
    )
