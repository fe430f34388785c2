"""`/runs`: all runs. `/runs/ID`: everything about one of them, the same as `collector report --by run` writes."""

import threading
from urllib.parse import quote, urlencode

from starlette.responses import Response

from gpuagent_collector.choices import PartKind
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.listing import run_columns, runs_sql
from gpuagent_collector.web.answers import Query, html, text
from gpuagent_collector.web.layout import render, whole_number
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import harmless

_FILTERS = ("workload", "platform", "experiment", "status")
# Rows of a page of the list.
_ROWS = 200
_MOST_PAGES = 100_000


class Runs:
    """The pages of the list of runs, newest first, and of single ones."""

    def __init__(self, ask: Ask, *, source: str) -> None:
        """Take the function that reads the store, and the store's name."""
        self._ask = ask
        self._source = source
        # One at a time, as reports.
        self._making = threading.Lock()

    def answer_list(self, query: Query) -> Response:
        """Return a page of the list; `workload` and others choose runs.

        Raises:
            MisuseError: a field of the address is invalid.
            GpuAgentError: the store cannot be read.
        """
        unknown = [field for field in query if field not in (*_FILTERS, "page")]
        if unknown:
            raise MisuseError(f"the list of runs takes {', '.join(_FILTERS)}, and nothing named {unknown[0][:40]}")
        number = whole_number(query, "page", unit="numbers", most=_MOST_PAGES) or 1
        wanted = {name: query.get(name) or None for name in _FILTERS}
        found = self._ask(runs_sql(wanted, _ROWS + 1, after=_ROWS * (number - 1)))
        rows = found[:_ROWS]
        columns = [column for column in run_columns(rows) if any(column.show(row) for row in rows)]

        def address(page: int) -> str:
            return f"/runs?{urlencode({**{name: value for name, value in wanted.items() if value}, 'page': page})}"

        return render(
            "runs.html",
            refresh_seconds=None,
            source=self._source,
            filters=[(name, wanted[name] or "") for name in _FILTERS],
            titles=[(column.title, column.right) for column in columns],
            rows=[
                (f"/runs/{quote(row['run_id'], safe='')}", [column.show(row) or ABSENT for column in columns])
                for row in rows
            ],
            first=_ROWS * (number - 1) + 1,
            newer=address(number - 1) if number > 1 else None,
            older=address(number + 1) if len(found) > _ROWS else None,
        )

    def answer(self, query: Query) -> Response:
        """Return the page of the run `name`; `each` adds the figures of its parts.

        Raises:
            MisuseError: a field of the address is invalid.
            GpuAgentError: the store cannot be read, or another page is being made.
        """
        # Charts and statistics are imported with the first page of a run.
        from gpuagent_collector.compare.comparison import Request
        from gpuagent_collector.report.page import policy, render_report

        unknown = [field for field in query if field not in ("name", "each")]
        if unknown:
            raise MisuseError(f"a run's page takes each, and nothing named {unknown[0][:40]}")
        try:
            each = PartKind(query["each"]) if query.get("each") else None
        except ValueError:
            raise MisuseError(f"each is one of {', '.join(kind.value for kind in PartKind)}") from None
        run_id = query["name"]
        if not self._ask("SELECT 1 FROM runs WHERE run_id = ? LIMIT 1", [run_id]):
            return text(harmless(f"no run is named {run_id[:100]}"), status=404)
        if not self._making.acquire(timeout=_LONGEST_WAIT_SECONDS):
            raise GpuAgentError("other runs' pages are being made; try again in a few seconds")
        try:
            request = Request(by="run", values=[run_id], each=each, every_status=True)
            page = render_report(self._ask, request, source=self._source, is_served=True)
        finally:
            self._making.release()
        return html(page, policy=f"{policy()}; frame-ancestors 'none'")


_LONGEST_WAIT_SECONDS = 20.0
