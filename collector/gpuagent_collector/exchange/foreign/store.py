"""The import of a file of results into a store: all of its runs, once."""

import codecs
import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import duckdb
import pyarrow as pa

from gpuagent_collector.exchange.foreign.formats import load, read_results
from gpuagent_collector.exchange.foreign.mlperf_inference import INFERENCE
from gpuagent_collector.exchange.foreign.result import COLLECTIVES, ForeignRun
from gpuagent_collector.exchange.foreign.rows import Place, Rows, make_rows, run_id, with_all_columns
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted


def read_file(path: Path, format_name: str | None, place: Place) -> tuple[Sequence[ForeignRun], bytes]:
    """Return the runs of a file, and its content.

    Raises:
        ResultError: the file is damaged or of no known format.
        MisuseError: neither the file nor the user says on which platform it was measured or under which conditions, or
            the user names one node of a file that states several.
    """
    content = load(path)
    runs = read_results(path, content, format_name)
    if not all(place.platform or run.platform for run in runs):
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
    INFERENCE: (("model",),),
}


def _check_conditions(path: Path, run: ForeignRun, place: Place) -> None:
    """Raise MisuseError where a run that succeeded lacks a condition. A failed one is compared with none."""
    if run.reason is not None or (place.workload and run.workload == INFERENCE):
        return
    for names in _NEEDED.get(run.workload, ()):
        if not any(run.parameters.get(name) is not None or name in place.parameters for name in names):
            first = f"--param {names[0]}="
            raise MisuseError(f"{path} does not state the {names[0]}; add {first}VALUE, or {first} if it is unknown")


def import_results(path: Path, runs: Sequence[ForeignRun], content: bytes, place: Place, store: Store) -> str:
    """Store the runs that the store lacks, in one transaction; return what was stored, in words.

    A run is known by its line of JSON lines, and in other files by their content and its number in it.

    Raises:
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
    words = f"{counted(len(news), 'run')} of {runs[0].program} stored, {len(known):,} were there already"
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
            writing.register("incoming", pa.Table.from_pylist(with_all_columns(news)))
            writing.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM incoming')  # noqa: S608 - ours
            writing.unregister("incoming")


_OF_SESSIONS = ("sessions", "session_devices")

_SESSIONS = "SELECT session_id FROM sessions WHERE session_id IN (SELECT unnest(CAST(? AS BIGINT[])))"
