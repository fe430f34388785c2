"""`/runs`: all runs. `/runs/ID`: everything about one, as `collector report --by run` writes. `/report`: any report."""

import threading
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from gpuagent_collector.choices import PartKind, Stat
from gpuagent_collector.errors import NothingToCompareError
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.listing import run_columns, runs_sql
from gpuagent_collector.web.layout import Query, check_fields, html, one_of, render, text, whole_number
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import harmless

# Fields that are passed on unchanged, named as the command's options. `where` is missing: SQL is accepted through gRPC
# only, where a guard reads it first.
_TEXTS = ("by", "baseline", "workload", "experiment", "metric")


class Reports:
    """The page of reports."""

    def __init__(self, ask: Ask, *, source: str) -> None:
        """Take the function that reads the store, and the store's name."""
        self._ask = ask
        self._source = source
        # One at a time: a report takes seconds of a core beside what agents send.
        self._making = threading.Lock()

    def answer(self, query: Query) -> Response:
        """Return the page.

        Raises:
            MisuseError: a field of the address is invalid.
            GpuAgentError: the store cannot be read, or another report is being made.
        """
        # Charts and statistics are imported with the first report.
        from gpuagent_collector.compare.comparison import Request
        from gpuagent_collector.report.page import policy, render_served

        check_fields(query, "a report", ("sides", *_TEXTS, "stat", "delta"))
        given: dict[str, Any] = {name: query[name] for name in _TEXTS if query.get(name)}
        try:
            percent = float(query.get("delta") or 2)
        except ValueError:
            percent = 0.0
        if not 0 < percent <= 100:
            raise MisuseError("delta is a number of percent, above 0 and up to 100")
        sides = [side for side in query.get("sides", "").split(",") if side]
        request = Request(**given, values=sides, stat=one_of(query, "stat", Stat), delta=percent / 100)
        if not self._making.acquire(blocking=False):
            raise GpuAgentError("another report is being made; try again in a few seconds")
        try:
            page = render_served(self._ask, request, source=self._source)
        except NothingToCompareError as error:
            return text(harmless(str(error)), status=404)
        finally:
            self._making.release()
        return html(page, policy=f"{policy()}; frame-ancestors 'none'")


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
        check_fields(query, "the list of runs", (*_FILTERS, "page"))
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
        from gpuagent_collector.report.page import policy, render_served

        check_fields(query, "a run's page", ("each",), has_name=True)
        each = one_of(query, "each", PartKind)
        run_id = query["name"]
        if not self._ask("SELECT 1 FROM runs WHERE run_id = ? LIMIT 1", [run_id]):
            return text(harmless(f"no run is named {run_id[:100]}"), status=404)
        if not self._making.acquire(timeout=_LONGEST_WAIT_SECONDS):
            raise GpuAgentError("other runs' pages are being made; try again in a few seconds")
        try:
            request = Request(by="run", values=[run_id], each=each, every_status=True)
            page = render_served(self._ask, request, source=self._source)
        finally:
            self._making.release()
        return html(page, policy=f"{policy()}; frame-ancestors 'none'")


_LONGEST_WAIT_SECONDS = 20.0
