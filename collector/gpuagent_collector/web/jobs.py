"""`/jobs` and `/idle`: the lists of jobs. `/jobs/ID`: one of them, as `collector job ID` shows it."""

from dataclasses import replace
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import Response

from gpuagent_collector.answers.job import answer_job
from gpuagent_collector.answers.jobs import Job, answer_idle, answer_jobs
from gpuagent_collector.present.answer import Answer
from gpuagent_collector.present.html import to_html
from gpuagent_collector.present.table import Table
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.web.layout import Query, check_fields, render, text
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import harmless

_FILTERS = ("user", "project")


class Jobs:
    """The pages of jobs."""

    def __init__(self, ask: Ask, *, source: str) -> None:
        """Take the function that reads the store, and the store's name."""
        self._ask = ask
        self._source = source

    def answer_list(self, query: Query) -> Response:
        """Return the jobs, those that run first; `user` and `project` choose some.

        Raises:
            MisuseError: a field of the address is invalid.
            GpuAgentError: the store cannot be read.
        """
        return self._page(answer_jobs(self._ask, **_filters(query)), "/jobs", query)

    def answer_idle(self, query: Query) -> Response:
        """Return the jobs that held GPUs without using them; raises as `answer_list`."""
        return self._page(answer_idle(self._ask, **_filters(query)), "/idle", query)

    def answer(self, query: Query) -> Response:
        """Return the page of the job `name`; raises as `answer_list`."""
        check_fields(query, "a job's page", (), has_name=True)
        try:
            answer = answer_job(self._ask, name=query["name"])
        except MisuseError as error:
            return text(harmless(str(error)), status=404)
        return self._page(answer)

    def _page(self, answer: Answer, address: str = "", query: Query | None = None) -> Response:
        """Return a page; a list, which has an address, has filters, and links to the pages of its jobs."""
        query = query or {}
        if address:
            parts = [replace(part, link=_address) if isinstance(part, Table) else part for part in answer.parts]
            answer = replace(answer, parts=parts)
        return render(
            "jobs.html",
            refresh_seconds=None,
            source=self._source,
            filters=[(name, query.get(name) or "") for name in _FILTERS] if address else [],
            address=address,
            content=Markup(to_html(answer)),  # noqa: S704 - escaped piece by piece
        )


def _address(job: Job) -> str:
    return f"/jobs/{quote(job.row['job'], safe='')}"


def _filters(query: Query) -> dict[str, Any]:
    check_fields(query, "the list of jobs", _FILTERS)
    return {name: query.get(name) or None for name in _FILTERS}
