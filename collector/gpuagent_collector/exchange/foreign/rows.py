"""Rows of the store for an imported run: those that an agent would have sent, as far as they are known."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuagent_collector.choices import IMPORTED
from gpuagent_collector.exchange.foreign.result import ForeignRun, Node
from gpuagent_common.keys import key

Rows = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a measurement as the user states it; None or empty: what the file states counts.

    Attributes:
        gpus: names of the GPUs, one for each.
        instance_type: the cloud's machine type, by which price files may name a node.
        workload: its name in comparisons.
        parameters: in addition to those of the file, or instead of them; '' is null.
    """

    platform: str | None = None
    node: str | None = None
    gpus: tuple[str, ...] = ()
    instance_type: str | None = None
    workload: str | None = None
    labels: Mapping[str, str]
    parameters: Mapping[str, str]


def run_id(run: ForeignRun, digest: str, place: Place) -> str:
    """Return the identity of a run; `digest` is that of its file and of its number in it."""
    return f"{place.workload or run.workload}-{digest[:10]}"


def make_rows(run: ForeignRun, digest: str, place: Place, file_name: str, file_time: datetime) -> Rows:
    """Return the rows of each table.

    Args:
        run: the measurement.
        digest: of the file and of the run's number in it.
        place: what the user says of it.
        file_name: the file's name without folders.
        file_time: UTC of the file's last change, which counts where the file has no time.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    ended = run.ended_at or file_time
    started = run.started_at or ended
    names = {"platform": place.platform or run.platform}
    hosts = _nodes(run, place)
    identity = run_id(run, digest, place)
    labels = json.dumps({**place.labels, IMPORTED: run.program})
    parameters = json.dumps(
        {name: _written(name, value) for name, value in {**run.parameters, **place.parameters}.items()}
    )
    for number, node in enumerate(hosts):
        # Runs on unknown nodes are no neighbours of one another.
        node_uuid = json.dumps(["imported", names["platform"], node.hostname or digest])
        session_uuid = json.dumps([node_uuid, digest, number, node.gpus, place.instance_type])
        ids = {"session_id": key(session_uuid), "node_id": key(node_uuid)}
        uuids = {"session_uuid": session_uuid, "node_uuid": node_uuid, "hostname": node.hostname}
        facts = {"started_at": started, "gpu_count": len(node.gpus) or None, "instance_type": place.instance_type}
        rows["sessions"].append({**ids, **uuids, **names, **facts, "labels": "{}"})
        of_run = {**ids, "run_id": identity}
        workload = {"workload": place.workload or run.workload, "parameters": parameters, "labels": labels}
        nodes = len(hosts) if len(hosts) > 1 else None
        rows["run_requests"].append({**of_run, "time": started, **workload, "command": "[]", "nodes": nodes})
        status = {"status": "failed" if run.reason else "succeeded", "reason": run.reason}
        rows["run_states"] += [
            {**of_run, "time": started, "status": "running", "reason": None},
            {**of_run, "time": ended, **status},
        ]
        for index, name in enumerate(node.gpus):
            device = {"device_id": key(json.dumps([node_uuid, index, name]))}
            rows["session_devices"].append(
                {**ids, "time": started, **device, "device_index": index, "name": name, "uuid": None}
            )
            rows["run_devices"].append({**of_run, "time": started, **device, "found_by": "import"})
        for name, time in run.phases:
            rows["run_events"].append({**of_run, "time": time, "event": "phase", "name": name})
    _add_reported(rows, run, ended, file_name)
    return rows


# Parameters that are texts even where they are a number: distributions of lengths and names.
_TEXTS = frozenset({"input", "output", "model", "server"})


def _written(name: str, value: Any) -> Any:
    """Return a parameter as JSON has it, alike from a file and from the user: 4.0 and '4' are 4."""
    if value in (None, ""):
        return None
    if name in _TEXTS or isinstance(value, bool):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return value
    if not math.isfinite(number):
        return str(value)
    return int(number) if number.is_integer() else number


def _nodes(run: ForeignRun, place: Place) -> Sequence[Node]:
    """Return the nodes that the user or the file names, or one without a name."""
    if place.node or place.gpus or not run.nodes:
        stated = run.nodes[0] if len(run.nodes) == 1 else Node(hostname=None, gpus=())
        return [Node(hostname=place.node or stated.hostname, gpus=place.gpus or stated.gpus)]
    return run.nodes


def _add_reported(rows: dict[str, list[dict[str, Any]]], run: ForeignRun, ended: datetime, file_name: str) -> None:
    """Add what the program reported, on the first node."""
    common = {name: rows["run_requests"][0][name] for name in ("session_id", "node_id", "run_id")}
    for time, name, detail in run.evaluations:
        rows["run_events"].append(
            {**common, "time": time, "event": "metric", "name": name, "detail": json.dumps(detail)}
        )
    source = {"source_program": run.program, "source_version": run.version, "source_file": file_name}
    if run.ended_at is None:
        source["source_time"] = "last change of the file"
    for name, value in source.items():
        if value is not None:
            rows["results"].append({**common, "time": ended, "name": name, "value_text": value})
    for figure in run.figures:
        kind = "value_text" if isinstance(figure.value, str) else "value"
        stated = {"name": figure.name, kind: figure.value, "unit": figure.unit, "phase": figure.phase}
        rows["results"].append({**common, "time": ended, **stated})


def with_all_columns(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that all have the columns of each."""
    known = list(rows)
    columns = dict.fromkeys(name for row in known for name in row)
    return [{name: row.get(name) for name in columns} for row in known]
