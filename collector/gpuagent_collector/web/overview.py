"""`/`: nodes, GPUs and runs as they are now, for a browser."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.responses import Response

from gpuagent_collector.output.html import templates
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.watch.columns import Column
from gpuagent_collector.watch.snapshot import RunNow, Snapshot
from gpuagent_collector.watch.view import Listing, Scope, View, select, summary
from gpuagent_collector.web.answers import Query, html
from gpuagent_common.errors import MisuseError

# Rows of a table: nobody reads more, and a filter finds the others.
MAX_ROWS = 200

_REFRESH_SECONDS = 5
_LONGEST_REFRESH_SECONDS = 3600

_TEMPLATES = templates(Path(__file__).parent / "templates")
_STYLE = (Path(__file__).parent / "templates" / "overview.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

# No scripts, and nothing from elsewhere: the one style sheet is named by its hash, the empty icon is in the page.
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

_TITLES = {Scope.NODES: "Nodes", Scope.RUNS: "Runs", Scope.GPUS: "GPUs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The fields of the address."""

    view: View
    refresh_seconds: int | None

    @classmethod
    def parse(cls, query: Query) -> "_Asked":
        seconds = query.get("refresh")
        # Python makes no number of thousands of digits.
        if seconds is not None and not (
            seconds.isdecimal() and len(seconds) < 5 and 1 <= int(seconds) <= _LONGEST_REFRESH_SECONDS
        ):
            raise MisuseError(f"refresh takes whole seconds from 1 to {_LONGEST_REFRESH_SECONDS}")
        view = View(sort_by=query.get("sort"), reverse=query.get("order") == "reversed", words=query.get("filter", ""))
        return cls(view=view, refresh_seconds=None if seconds is None else int(seconds))

    def address(self, **changes: str | None) -> str:
        """Return the address of this page with some fields changed; None removes one."""
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
        """Take the function that returns a snapshot, and the store's name."""
        self._snapshot = snapshot
        self._source = source

    def answer(self, query: Query) -> Response:
        """Return the page.

        Raises:
            MisuseError: a field of the address is invalid.
            GpuAgentError: the store cannot be read.
        """
        asked = _Asked.parse(query)
        snapshot = self._snapshot()
        lists = select(snapshot, asked.view)
        page = _TEMPLATES.get_template("overview.html").render(
            style=Markup(_STYLE),  # noqa: S704 - a file of ours
            summary=list(summary(snapshot)),
            taken_at=f"{snapshot.taken_at:%Y-%m-%d %H:%M:%S}",
            source=self._source,
            view=asked.view,
            refresh_seconds=asked.refresh_seconds,
            toggled_refresh=asked.address(refresh=None if asked.refresh_seconds else str(_REFRESH_SECONDS)),
            lists=[_list(title, lists[scope], asked) for scope, title in _TITLES.items()],
        )
        return html(page, policy=_POLICY)


def _list(title: str, listing: Listing[Any], asked: _Asked) -> dict[str, Any]:
    """Return what the template shows of a list; columns without any value are left out."""
    shown = listing.rows[:MAX_ROWS]
    columns = [column for column in listing.columns if any(column.show(row) for row in shown)]
    return {
        "title": title,
        "number": f"{len(listing.rows):,}",
        "row_name": listing.row_name,
        "headers": [_header(column, asked) for column in columns],
        "rows": [[_cell(column, row) for column in columns] for row in shown],
        "is_cut": len(listing.rows) > MAX_ROWS,
    }


def _header(column: Column[Any], asked: _Asked) -> dict[str, Any]:
    is_chosen = asked.view.sort_by == column.title
    order = "reversed" if is_chosen and not asked.view.reverse else None
    direction = "descending" if column.is_figure is not asked.view.reverse else "ascending"
    return {
        "title": column.title,
        "is_figure": column.is_figure,
        "address": asked.address(sort=column.title, order=order),
        "direction": direction if is_chosen else None,
    }


def _cell(column: Column[Any], row: Any) -> tuple[str, str, str | None]:
    """Return a cell's text, its classes and the address that it links to."""
    text = column.show(row)
    style = "dim" if text is None else column.style and column.style(row)
    classes = ("figure" if column.is_figure else None, style)
    address = f"/runs/{quote(row.run_id, safe='')}" if isinstance(row, RunNow) and column.title == "run" else None
    return ABSENT if text is None else text, " ".join(filter(None, classes)), address
