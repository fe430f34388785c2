"""`/`: nodes, GPUs and runs as they are now, for a browser."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.watch.columns import Column, GpuRow
from gpuagent_collector.watch.snapshot import RunNow, Snapshot
from gpuagent_collector.watch.view import Scope, View, select, summary
from gpuagent_collector.web.layout import REFRESH_SECONDS, Query, render, whole_number

# Rows of a table: nobody reads more, and a filter finds the others.
MAX_ROWS = 200

_LONGEST_REFRESH_SECONDS = 3600

_TITLES = {Scope.NODES: "Nodes", Scope.RUNS: "Runs", Scope.GPUS: "GPUs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The fields of the address."""

    view: View
    refresh_seconds: int | None

    @classmethod
    def parse(cls, query: Query) -> "_Asked":
        seconds = whole_number(query, "refresh", unit="seconds", most=_LONGEST_REFRESH_SECONDS)
        view = View(sort_by=query.get("sort"), reverse=query.get("order") == "reversed", words=query.get("filter", ""))
        return cls(view=view, refresh_seconds=seconds)

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


def answer_overview(snapshot: Snapshot, query: Query, *, source: str) -> Response:
    """Return the page; `source` names the store. Raises MisuseError: a field of the address is invalid."""
    asked = _Asked.parse(query)
    chosen = select(snapshot, asked.view)
    lists = []
    for scope, title in _TITLES.items():
        rows = chosen[scope].rows
        shown = rows[:MAX_ROWS]
        # Columns without any value are left out.
        columns = [column for column in chosen[scope].columns if any(column.show(row) for row in shown)]
        lists.append(
            {
                "title": title,
                "number": f"{len(rows):,}",
                "row_name": chosen[scope].row_name,
                "headers": [_header(column, asked) for column in columns],
                "rows": [[_cell(column, row) for column in columns] for row in shown],
                "is_cut": len(rows) > MAX_ROWS,
            }
        )
    return render(
        "overview.html",
        summary=list(summary(snapshot)),
        taken_at=f"{snapshot.taken_at:%Y-%m-%d %H:%M:%S}",
        source=source,
        view=asked.view,
        refresh_seconds=asked.refresh_seconds,
        toggled_refresh=asked.address(refresh=None if asked.refresh_seconds else str(REFRESH_SECONDS)),
        lists=lists,
    )


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
    text = column.show(row)
    style = "dim" if text is None else column.style and column.style(row)
    classes = ("figure" if column.is_figure else None, style)
    address = None
    if column.title == "run" and isinstance(row, RunNow):
        address = f"/runs/{quote(row.run_id, safe='')}"
    elif column.title == "node":
        node_uuid = (row.node if isinstance(row, GpuRow) else row).node_uuid
        address = node_uuid and f"/nodes/{quote(node_uuid, safe='')}"
    return ABSENT if text is None else text, " ".join(filter(None, classes)), address
