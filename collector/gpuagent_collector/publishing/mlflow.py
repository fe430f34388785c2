"""Runs published to a server of MLflow, by its REST API."""

import base64
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from itertools import islice
from typing import Any
from urllib.parse import urlencode, urlsplit

from gpuagent_collector.publishing.run import Point, PublishedRun, safe_name, unix_milliseconds
from gpuagent_common.errors import GpuAgentError, MisuseError

# What one request of MLflow takes.
_MOST_METRICS, _MOST_PARAMETERS, _MOST_TEXT = 1000, 100, 5000
_HISTORY_PAGE = 25_000
_ANSWER_SECONDS = 120.0

_STATUSES = {"queued": "SCHEDULED", "running": "RUNNING", "succeeded": "FINISHED", "cancelled": "KILLED"}

# The tag by which a published run is found again.
_RUN_TAG = "gpuagent.run_id"


class MlflowTracker:
    """A server of MLflow that runs are published to."""

    def __init__(self, address: str) -> None:
        """Take its address, and what MLflow's own variables say of its user.

        Raises MisuseError: the address is none of HTTP, or has a user in it.
        """
        place = urlsplit(address)
        if place.scheme not in ("http", "https") or not place.hostname:
            given = f", not {address[:80]!r}" if address else ""
            raise MisuseError(f"MLflow is at an address such as --at http://127.0.0.1:5000{given}")
        if place.username is not None:
            raise MisuseError("an address with a user would be printed; set MLFLOW_TRACKING_USERNAME instead")
        self._url = address.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        token, user = os.environ.get("MLFLOW_TRACKING_TOKEN"), os.environ.get("MLFLOW_TRACKING_USERNAME")
        if user:
            pair = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif token:
            self._headers["Authorization"] = f"Bearer {token}"

    def publish(self, run: PublishedRun) -> tuple[int, str]:
        """Add what the server lacks of a run; return how many values that were, and the address of the run there.

        Raises GpuAgentError: the server does not answer, or refuses it.
        """
        experiment_id = self._find_experiment(run.project)
        known = self._find_run(experiment_id, run) or self._create_run(experiment_id, run)
        run_id = known["info"]["run_id"]
        data = known.get("data", {})
        self._add_facts(run_id, data, run)
        added = self._add_points(run_id, [each["key"] for each in data.get("metrics", [])], list(run.points))
        status = {"run_id": run_id, "status": _STATUSES.get(run.status, "FAILED")}
        if run.ended_at is not None:
            status["end_time"] = unix_milliseconds(run.ended_at)
        if any(known["info"].get(key) != value for key, value in status.items()):
            self._ask("runs/update", status)
        return added, f"{self._url}/#/experiments/{experiment_id}/runs/{run_id}"

    def _find_experiment(self, name: str) -> str:
        try:
            answer = self._ask(f"experiments/get-by-name?{urlencode({'experiment_name': name})}")
            return str(answer["experiment"]["experiment_id"])
        except _AbsentError:
            return str(self._ask("experiments/create", {"name": name})["experiment_id"])

    def _find_run(self, experiment_id: str, run: PublishedRun) -> dict[str, Any] | None:
        wanted = f"tags.\"{_RUN_TAG}\" = '{run.run_id}'"
        answer = self._ask("runs/search", {"experiment_ids": [experiment_id], "filter": wanted, "max_results": 1})
        return next(iter(answer.get("runs", ())), None)

    def _create_run(self, experiment_id: str, run: PublishedRun) -> dict[str, Any]:
        body = {
            "experiment_id": experiment_id,
            "run_name": run.run_id,
            "start_time": unix_milliseconds(run.started_at),
            "tags": [{"key": _RUN_TAG, "value": run.run_id}],
        }
        created: dict[str, Any] = self._ask("runs/create", body)["run"]
        return created

    def _add_facts(self, run_id: str, data: Mapping[str, Any], run: PublishedRun) -> None:
        """Add the parameters that the run lacks, which MLflow never changes, and the tags that differ."""
        tags = {f"gpuagent.{safe_name(key)}": value for key, value in run.facts.items()}
        if "page" in run.facts:
            tags["mlflow.note.content"] = f"[{run.run_id}]({run.facts['page']}) in gpuagent"
        stored = {each["key"] for each in data.get("params", ())}
        parameters = {safe_name(key): value for key, value in run.parameters.items()}
        news = _pairs({key: value for key, value in parameters.items() if key not in stored})
        known = {(each["key"], each["value"]) for each in data.get("tags", ())}
        changed = [tag for tag in _pairs(tags) if (tag["key"], tag["value"]) not in known]
        for part in _parts(news, _MOST_PARAMETERS):
            self._ask("runs/log-batch", {"run_id": run_id, "params": part})
        for part in _parts(changed, _MOST_PARAMETERS):
            self._ask("runs/log-batch", {"run_id": run_id, "tags": part})

    def _add_points(self, run_id: str, names: Sequence[str], points: Sequence[Point]) -> int:
        """Add the points whose name, step and time the run does not have."""
        stored = {(name, each["step"], each["timestamp"]) for name in names for each in self._history(run_id, name)}
        news = []
        for point in points:
            milliseconds = unix_milliseconds(point.time)
            if (point.name, point.step, milliseconds) not in stored:
                metric = {"key": point.name, "value": point.value, "timestamp": milliseconds, "step": point.step}
                news.append(metric)
        for part in _parts(news, _MOST_METRICS):
            self._ask("runs/log-batch", {"run_id": run_id, "metrics": part})
        return len(news)

    def _history(self, run_id: str, name: str) -> Iterator[dict[str, int]]:
        query: dict[str, Any] = {"run_id": run_id, "metric_key": name, "max_results": _HISTORY_PAGE}
        while True:
            answer = self._ask(f"metrics/get-history?{urlencode(query)}")
            for each in answer.get("metrics", ()):
                yield {"step": int(each.get("step", 0)), "timestamp": int(each["timestamp"])}
            if not answer.get("next_page_token"):
                return
            query["page_token"] = answer["next_page_token"]

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a request, a POST where it has a body."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/api/2.0/mlflow/{path}", content, self._headers)  # noqa: S310 - HTTP, as checked
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 - as above
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            text = error.read(2000).decode(errors="replace")
            if "RESOURCE_DOES_NOT_EXIST" in text:
                raise _AbsentError(f"MLflow at {self._url} lacks what {path[:40]} asks for: {text[:200]}") from error
            raise GpuAgentError(f"MLflow at {self._url} answers {error.code} to {path[:40]}: {text[:200]}") from error
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise GpuAgentError(f"MLflow at {self._url} does not answer: {reason}; start `mlflow server`") from error


class _AbsentError(GpuAgentError):
    """The server has no such thing."""


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value[:_MOST_TEXT]} for key, value in values.items()]


def _parts(values: Sequence[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(values)
    while part := list(islice(rest, size)):
        yield part
