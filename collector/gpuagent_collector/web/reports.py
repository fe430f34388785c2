"""`/report`: the same page as `collector report` writes, of what the address asks for."""

import threading
from typing import Any

from starlette.responses import Response

from gpuagent_collector.choices import Stat
from gpuagent_collector.errors import NothingToCompareError
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.web.answers import Query, html, text
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import harmless

# Fields that are passed on unchanged, named as the command's options. `where` is missing: SQL is accepted through gRPC
# only, where a guard reads it first.
_TEXTS = ("by", "baseline", "workload", "experiment", "metric")

_NAMES = ("sides", *_TEXTS, "stat", "delta")


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
        from gpuagent_collector.report.page import policy, render_report

        unknown = [name for name in query if name not in _NAMES]
        if unknown:
            raise MisuseError(f"a report takes {', '.join(_NAMES)}, and nothing named {unknown[0][:40]}")
        given: dict[str, Any] = {name: query[name] for name in _TEXTS if query.get(name)}
        try:
            percent = float(query.get("delta") or 2)
        except ValueError:
            percent = 0.0
        if not 0 < percent <= 100:
            raise MisuseError("delta is a number of percent, above 0 and up to 100")
        try:
            stat = Stat(query["stat"]) if query.get("stat") else None
        except ValueError:
            raise MisuseError(f"stat is one of {', '.join(stat.value for stat in Stat)}") from None
        sides = [side for side in query.get("sides", "").split(",") if side]
        request = Request(**given, values=sides, stat=stat, delta=percent / 100)
        if not self._making.acquire(blocking=False):
            raise GpuAgentError("another report is being made; try again in a few seconds")
        try:
            page = render_report(self._ask, request, source=self._source, is_served=True)
        except NothingToCompareError as error:
            return text(harmless(str(error)), status=404)
        finally:
            self._making.release()
        return html(page, policy=f"{policy()}; frame-ancestors 'none'")
