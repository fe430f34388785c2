"""The import of a file of results into a store: its format, its rows as an agent would have sent them, once."""

import codecs
import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gpuagent_collector.choices import IMPORTED
from gpuagent_collector.exchange.foreign import aiperf, guidellm, nccl_tests, vllm_bench
from gpuagent_collector.exchange.foreign.result import COLLECTIVES, ForeignRun, Node, ResultError
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.keys import key
from gpuagent_common.text import counted

# Details of each request are most of such a file. Python needs several times its size.
MOST_BYTES = 256 * 1024 * 1024


# Name of a format → whether a file has it, of its parsed JSON or its text, which never fails; and its runs.
FORMATS: Mapping[str, tuple[Callable[[Any], bool], Callable[[Any], Sequence[ForeignRun]]]] = {
    "aiperf": (aiperf.recognise, aiperf.read),
    "guidellm": (guidellm.recognise, guidellm.read),
    "vllm-bench": (vllm_bench.recognise, vllm_bench.read),
    "nccl-tests": (nccl_tests.recognise, nccl_tests.read),
}


def load(path: Path) -> bytes:
    """Return the content of a file.

    Raises ResultError: it is no regular file, empty or too large, or cannot be read.
    """
    try:
        if not path.is_file():
            raise ResultError(f"{path} is no file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ResultError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise ResultError(f"{path} is larger than {MOST_BYTES >> 20} MiB; leave the details of requests out of it")
    if not content.strip():
        raise ResultError(f"{path} is empty")
    return content


def read_results(path: Path, content: bytes) -> Sequence[ForeignRun]:
    """Return the runs of a file, in the format that its content has.

    Raises ResultError: the file is damaged or of no known format.
    """
    document = _parse(path, content)
    name, read = next(((name, read) for name, (fits, read) in FORMATS.items() if fits(document)), ("", None))
    if read is None:
        raise ResultError(f"{path} is of no known format; it can be {', '.join(FORMATS)}, or with --run a log")
    try:
        runs = read(document)
    except ResultError as error:
        raise ResultError(f"{path}: {error}") from error
    except GpuAgentError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ResultError(f"{path} is damaged or of an unknown version of {name}: {error!r:.80}") from error
    if not runs:
        raise ResultError(f"{path} has no results")
    return runs


def _parse(path: Path, content: bytes) -> Any:
    """Return the JSON of a file, of JSON lines as a list, and of another file its text."""
    try:
        written = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResultError(f"{path} is no text: byte {error.start} is no UTF-8") from error
    if not written.lstrip().startswith("{"):
        return written
    try:
        try:
            return json.loads(written, parse_int=_integer)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Extra data"):
                raise
            return [json.loads(line, parse_int=_integer) for line in written.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path} is damaged or truncated JSON: {error!s:.80}") from error


def _integer(written: str) -> int | float:
    # Python refuses integers of thousands of digits, and DOUBLE cannot hold them.
    return int(written) if len(written) < 300 else math.inf


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
        digest: of the file and of the run's number in it.
        place: what the user says of it.
        file_time: UTC of the file's last change, which counts where the file has no time.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    ended = run.ended_at or file_time
    started = run.started_at or ended
    # The nodes that the user or the file names, or one without a name.
    hosts = run.nodes
    if place.node or place.gpus or not hosts:
        stated = hosts[0] if len(hosts) == 1 else Node(hostname=None, gpus=())
        hosts = [Node(hostname=place.node or stated.hostname, gpus=place.gpus or stated.gpus)]
    identity = run_id(run, digest, place)
    labels = json.dumps({**place.labels, IMPORTED: run.program})
    parameters = json.dumps(
        {name: _written(name, value) for name, value in {**run.parameters, **place.parameters}.items()}
    )
    for number, node in enumerate(hosts):
        # Runs on unknown nodes are no neighbours of one another.
        node_uuid = json.dumps(["imported", place.platform, node.hostname or digest])
        session_uuid = json.dumps([node_uuid, digest, number, node.gpus, place.instance_type])
        ids = {"session_id": key(session_uuid), "node_id": key(node_uuid)}
        uuids = {"session_uuid": session_uuid, "node_uuid": node_uuid, "hostname": node.hostname}
        facts = {"started_at": started, "gpu_count": len(node.gpus) or None, "instance_type": place.instance_type}
        rows["sessions"].append({**ids, **uuids, "platform": place.platform, **facts, "labels": "{}"})
        of_run = {**ids, "run_id": identity}
        workload = {"workload": place.workload or run.workload, "parameters": parameters, "labels": labels}
        nodes = len(hosts) if len(hosts) > 1 else None
        rows["run_requests"].append({**of_run, "time": started, **workload, "command": "[]", "nodes": nodes})
        status = {"status": "failed" if run.reason else "succeeded", "reason": run.reason}
        rows["run_states"].append({**of_run, "time": started, "status": "running", "reason": None})
        rows["run_states"].append({**of_run, "time": ended, **status})
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


def _add_reported(rows: dict[str, list[dict[str, Any]]], run: ForeignRun, ended: datetime, file_name: str) -> None:
    """Add what the program reported, on the first node."""
    common = {name: rows["run_requests"][0][name] for name in ("session_id", "node_id", "run_id")}
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


def read_file(path: Path, place: Place) -> tuple[Sequence[ForeignRun], bytes]:
    """Return the runs of a file, and its content.

    Raises:
        ResultError: the file is damaged or of no known format.
        MisuseError: the user does not say on which platform it was measured, neither the file nor the user under which
            conditions, or the user names one node of a file that states several.
    """
    content = load(path)
    runs = read_results(path, content)
    if not place.platform:
        raise MisuseError(f"{path} does not say where it was measured; add --platform NAME")
    if (nodes := max(len(run.nodes) for run in runs)) > 1 and (place.node or place.gpus):
        raise MisuseError(f"{path} names {nodes} nodes; leave out --node and --gpu")
    for run in runs:
        _check_conditions(path, run, place)
    return runs, content


# Parameters of which a run states one of each, by workload: without it, runs of different work would be repeats.
_NEEDED = {
    SERVING: (("model",), ("concurrency", "rate", "profile", "trace"), ("input",), ("output",)),
    COLLECTIVES: (("collective",),),
}


def _check_conditions(path: Path, run: ForeignRun, place: Place) -> None:
    """Raise MisuseError where a run that succeeded lacks a condition. A failed one is compared with none."""
    if run.reason is not None:
        return
    for names in _NEEDED.get(run.workload, ()):
        if not any(run.parameters.get(name) is not None or name in place.parameters for name in names):
            first = f"--param {names[0]}="
            raise MisuseError(f"{path} does not state the {names[0]}; add {first}VALUE, or {first} if it is unknown")


def import_results(path: Path, runs: Sequence[ForeignRun], content: bytes, place: Place, store: Store) -> str:
    """Store the runs that the store lacks, in one transaction; return what was stored, in words.

    A run is known by its line of JSON lines, and in other files by their content and its number in it. Raises
    StoreError: the store cannot be written.
    """
    digests = _digests(content, len(runs))
    file_time = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).replace(tzinfo=None)
    news: list[str] = []
    known = []
    with store.transaction() as writing:
        for run, digest in zip(runs, digests, strict=True):
            if found := writing.execute(_KNOWN, [f"%-{digest[:10]}"]).fetchone():
                known.append(found[0])
                continue
            _insert(writing, make_rows(run, digest, place, path.name, file_time))
            news.append(run_id(run, digest, place))
        if news:
            summarize_runs(writing, news, utc_now())
    words = f"{counted(len(news), 'run')} of {runs[0].program} stored, {len(known) or 'none'} were already stored"
    return f"{words}: {', '.join([*news, *known])}"


def _digests(content: bytes, runs: int) -> list[str]:
    """Return a digest for each run, which lines that are appended to JSON lines later do not change."""
    lines = [line.strip() for line in content.removeprefix(codecs.BOM_UTF8).split(b"\n") if line.strip()]
    # No object over several lines has only lines that begin and end like this.
    if len(lines) == runs and all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        parts = lines
    else:
        whole = hashlib.blake2b(content).digest()
        parts = [whole] * runs
    earlier: Counter[bytes] = Counter()
    digests = []
    for part in parts:
        digests.append(hashlib.blake2b(part, person=str(earlier[part]).encode()).hexdigest())
        earlier[part] += 1
    return digests


_KNOWN = "SELECT run_id FROM run_requests WHERE run_id LIKE ?"


def _insert(writing: duckdb.DuckDBPyConnection, tables: Rows) -> None:
    # Sessions stay when their run is removed, which may then be imported again.
    ids = [row["session_id"] for row in tables["sessions"]]
    stored = {row[0] for row in writing.execute(_SESSIONS, [ids]).fetchall()}
    for table, rows in tables.items():
        news = [row for row in rows if table not in _OF_SESSIONS or row["session_id"] not in stored]
        if news:
            columns = dict.fromkeys(name for row in news for name in row)
            whole = [{name: row.get(name) for name in columns} for row in news]
            writing.register("incoming", pa.Table.from_pylist(whole))
            writing.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM incoming')  # noqa: S608 - ours
            writing.unregister("incoming")


_OF_SESSIONS = ("sessions", "session_devices")

_SESSIONS = "SELECT session_id FROM sessions WHERE session_id IN (SELECT unnest(CAST(? AS BIGINT[])))"
