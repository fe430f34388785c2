"""Logs of experiment trackers, read as the steps of a run that this store has.

Formats: the history of Weights & Biases as CSV or JSON lines (`_step`, `_timestamp`), any such file with a column of
steps, a run's folder of MLflow (`metrics/NAME` with lines `milliseconds value step`), a database of MLflow or Trackio,
event files of TensorBoard, or the metrics that a program printed. A chart of Weights & Biases has columns
`RUN - METRIC`, each with `__MIN` and `__MAX` beside it, of one run or several.
"""

import csv
import json
import math
import sqlite3
import statistics
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa

from gpuagent_collector.errors import MissingPackageError
from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.query.ask import ask_within
from gpuagent_collector.query.named_runs import find_run
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import MisuseError
from gpuagent_common.patterns import MAX_LINE_CHARACTERS, READY, metrics_of
from gpuagent_common.statuses import FINAL_STATUSES
from gpuagent_common.text import counted

# Names of the columns, the first that is there; without regard to case.
_STEPS = ("_step", "step", "global_step", "trainer/global_step", "iteration", "iter")
_TIMES = (
    *("_timestamp", "timestamp", "wall_time", "wall time", "time"),
    *("_runtime", "elapsed", "elapsed_s", "elapsed_seconds", "elapsed_time", "relative time (process)"),
)
_SURE_TIMES = ("_timestamp", "timestamp")

# Names of the column with the run of a row, in tables of several runs.
_RUNS = ("run", "run_id", "run id", "run_name", "run name")

# The bounds of what a chart's point stands for; most are the point itself.
_BOUNDS = ("__MIN", "__MAX")

# The index that pandas writes before the first column.
_INDEXES = ("", "unnamed: 0")

# Steps fit into 53 bits, and times are Unix seconds up to the year 2200, beyond which lie those in milliseconds.
_MOST_STEPS, _LATEST_SECONDS = 2**53, 7_258_118_400

# Beginnings of the names of what is no program's metric of a step: MLflow's own measurements of the machine, which
# `collector publish` adds for all nodes and Trackio has in another table, and figures of a whole run.
SYSTEM_PREFIX, FIGURE_PREFIX = "system/", "figure/"

# Clocks of the program and of its node are the same; some logs have whole seconds.
_SLACK = timedelta(seconds=2)
# Lower times, before 1980, count from the start of something in the run.
_FIRST_UNIX_SECONDS = 10 * 365.25 * 86_400

# The last value of the first that a log has is the run's result, as of printed lines; a share is no percentage.
_RESULTS = (("loss", None, ("loss", "train/loss", "train_loss")), ("accuracy", "%", ("accuracy",)))

# A longer interval between two steps holds something else besides, as for printed steps.
_GAP_RATIO = 3.0


@dataclass(slots=True)
class LoggedStep:
    """A step of a log: its time in Unix seconds, None if the log has no times, and its numbers."""

    unix_seconds: float | None = None
    values: dict[str, float] = field(default_factory=dict)


def read_log(path: Path, chosen: str | None = None) -> dict[int, LoggedStep]:
    """Return the steps of a log by number, in order; of a table of several runs, those of the run `chosen`.

    Raises MisuseError: the format is unknown, there are no steps in it, or it is of several runs and none is chosen.
    """
    if path.is_dir() and (path / "metrics").is_dir():
        records = _read_mlflow(path / "metrics")
    elif path.is_dir() or "tfevents" in path.name:
        records = _read_tensorboard(path)
    elif path.suffix == ".db":
        records = _read_database(path, chosen)
    else:
        records = _read_rows(path, chosen)
    steps: dict[int, LoggedStep] = {}
    for number, unix_seconds, values in records:
        if not -_MOST_STEPS < number < _MOST_STEPS:
            raise MisuseError(f"{path} has the step {number:.3g}, beyond 2^53")
        if unix_seconds is not None and not 0 <= unix_seconds < _LATEST_SECONDS:
            raise MisuseError(f"{path} has the time {unix_seconds:.6g} at step {number}, which is not in Unix seconds")
        step = steps.setdefault(number, LoggedStep())
        step.values.update({name: value for name, value in values.items() if math.isfinite(value)})
        if unix_seconds is not None:
            step.unix_seconds = max(unix_seconds, step.unix_seconds or 0.0)
    if not steps:
        raise MisuseError(
            f"{path} has no steps; it needs lines such as `Step 10, loss 0.3` or one of the columns {', '.join(_STEPS)}"
        )
    return dict(sorted(steps.items()))


Record = tuple[int, float | None, dict[str, float]]


def _read_rows(path: Path, chosen: str | None) -> Iterator[Record]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix.lower() == ".csv":
                rows: Any = csv.DictReader(file)
                header = rows.fieldnames or ()
                if charted := {name for name in header if all(f"{name}{bound}" in header for bound in _BOUNDS)}:
                    rows, chosen = _read_chart(path, rows, charted, chosen), None
            else:
                lines = [line for line in file.read().splitlines() if line.strip()]
                if lines and not lines[0].lstrip().startswith("{") and path.suffix.lower() != ".jsonl":
                    yield from _read_printed(lines)
                    return
                rows = map(json.loads, lines)
            yield from _read_records(path, rows, chosen)
    except (OSError, ValueError, AttributeError, csv.Error) as error:
        raise MisuseError(f"{path} is neither CSV (*.csv) nor JSON lines: {error}") from error


def _read_printed(lines: Collection[str]) -> Iterator[Record]:
    """Yield the metrics in the lines of the pattern that fits best; steps count on where an epoch begins them anew."""
    found: dict[str, list[dict[str, float]]] = {}
    for line, pattern in product(lines, READY):
        matches = (template.match(line[:MAX_LINE_CHARACTERS]) for template in (*pattern.steps, *pattern.metrics))
        if (values := next(filter(None, matches), None)) and metrics_of(values):
            found.setdefault(pattern.name, []).append(values)
    known = [pattern for pattern in READY if pattern.name in found]
    best = min(known, key=lambda pattern: (pattern.rank, -len(found[pattern.name])), default=None)
    before = latest = 0
    for index, values in enumerate(found[best.name] if best else ()):
        step = values.get("step", math.nan)
        number = round(step) if math.isfinite(step) else index
        if number < latest:
            before, latest = before + latest, 0
        latest = max(latest, number)
        yield before + number, None, metrics_of(values)


def _read_records(path: Path, rows: Iterator[Any], chosen: str | None) -> Iterator[Record]:
    found: set[str] = set()
    for row in rows:
        values = {str(name).lower(): value for name, value in row.items()}
        if run := next((str(values[name]) for name in _RUNS if values.get(name) not in (None, "")), None):
            found.add(run)
            if chosen is not None and run != chosen:
                continue
            if len(found) > 1 and chosen is None:
                raise MisuseError(_several(path, found))
        time = next(
            (_time(path, name, values.pop(name)) for name in _TIMES if values.get(name) not in (None, "")), None
        )
        parsed = ((name, _number(value)) for name, value in values.items() if name not in _INDEXES)
        numbers = {name: number for name, number in parsed if number is not None}
        step = next((numbers.pop(name) for name in _STEPS if name in numbers), None)
        if step is not None:
            kept = {name: one for name, one in numbers.items() if not name.startswith("_") and name not in _RUNS}
            yield round(step), time, kept
    if chosen is not None and chosen not in found:
        raise MisuseError(f"{path.name} names no run {chosen!r:.60}; leave out --log-run if it is of one run")


def _read_chart(
    path: Path, rows: Iterator[Mapping[str, str]], charted: Collection[str], chosen: str | None
) -> Iterator[dict[str, str]]:
    """Yield the rows of a chart, with the columns of its only run or of the chosen one, by the names of the metrics."""
    runs = {name: name.rpartition(" - ")[0] for name in charted}
    found = set(runs.values())
    run = chosen or next(iter(found))
    if run not in found or (chosen is None and len(found) > 1):
        raise MisuseError(_several(path, found))
    left_out = {name for name, other in runs.items() if other != run}
    left_out |= {f"{name}{bound}" for name in charted for bound in _BOUNDS}
    for row in rows:
        kept = {name: value for name, value in row.items() if name not in left_out}
        yield {name.rpartition(" - ")[2] if name in charted else name: value for name, value in kept.items()}


def _several(path: Path, runs: Collection[str]) -> str:
    listed = ", ".join(sorted(runs)[:3])
    more = ", …" if len(runs) > 3 else ""
    return f"{path.name} is of {counted(len(runs), 'run')} ({listed}{more}); name one with --log-run"


def _time(path: Path, name: str, value: Any) -> float | None:
    """Return Unix seconds, of a number or an ISO time, which without a zone counts as UTC; None: it is absent.

    Columns that are called `time` have other things too, such as how long a step took, in words.
    """
    number = _number(value)
    if number is not None or str(value).strip().lower() in ("nan", "none", "null"):
        return number
    try:
        moment = datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
    except ValueError:
        if name not in _SURE_TIMES:
            return None
        raise MisuseError(f"{path.name} has the time {str(value)!r:.40}; times are Unix seconds or ISO 8601") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _read_mlflow(folder: Path) -> Iterator[Record]:
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        if not _is_of_step(name):
            continue
        for line in file.read_text(errors="replace").splitlines():
            with suppress(ValueError):  # a line that a crash cut off
                milliseconds, value, step = line.split()
                yield int(step), int(milliseconds) / 1e3, {name: float(value)}


def _read_database(path: Path, chosen: str | None) -> Iterator[Record]:
    """Yield the values in MLflow's database or a project's of Trackio; a run is chosen by its name or identity."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            rows = database.execute(_MLFLOW_ROWS if "registered_models" in tables else _TRACKIO_ROWS).fetchall()
    except sqlite3.Error as error:
        raise MisuseError(f"{path} is no database of MLflow or Trackio: {error}") from error
    runs = {row[:2] for row in rows}
    if not runs:
        raise MisuseError(f"{path} has no values of any run")
    found = [run for run in runs if chosen is None or chosen in run]
    if len(found) != 1:
        # Of MLflow, several runs can have one name.
        raise MisuseError(
            _several(path, [name if name and name != chosen else run_id for name, run_id in found or runs])
        )
    for name, run_id, step, time, metrics in rows:
        if (name, run_id) == found[0]:
            numbers = {key: _number(value) for key, value in json.loads(metrics).items()}
            values = {key: number for key, number in numbers.items() if number is not None and _is_of_step(key)}
            if values:
                yield step, _time(path, "timestamp", time), values


# As texts with all digits: numbers in SQLite's JSON have 15.
_MLFLOW_ROWS = """
SELECT runs.name, run_uuid, step, timestamp / 1e3, json_object(key, printf('%!.17g', value))
FROM metrics JOIN runs USING (run_uuid) WHERE NOT is_nan"""

_TRACKIO_ROWS = "SELECT run_name, run_id, step, timestamp, metrics FROM metrics"


def _is_of_step(name: str) -> bool:
    return not name.startswith((SYSTEM_PREFIX, FIGURE_PREFIX))


def _read_tensorboard(path: Path) -> Iterator[Record]:
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise MissingPackageError("logs of TensorBoard", "tensorboard") from error
    log = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    log.Reload()
    for name in log.Tags()["scalars"]:
        for event in log.Scalars(name):
            yield event.step, event.wall_time, {name: float(event.value)}
    for name in log.Tags()["tensors"]:
        for event in log.Tensors(name):
            value = make_ndarray(event.tensor_proto)
            if value.size == 1:
                yield event.step, event.wall_time, {name: float(value.reshape(-1)[0])}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def import_log(path: Path, run_id: str, store: Store, items_per_step: float | None, chosen: str | None = None) -> str:
    """Store the steps of a log as those of a run, and compute its figures anew; return what was stored, in words.

    Raises:
        MisuseError: the log cannot be read, the store has no such run or several, it has not ended, has steps already,
            or ran at another time.
        StoreError: the store cannot be written.
    """
    steps = read_log(path, chosen)
    with closing(store.connect()) as connection:
        run_id = find_run(ask_within(connection), run_id).run_id
        found = connection.execute(_RUN, [run_id]).fetchone()
        ended = connection.execute(_ENDED).fetchall()
    if found is None:
        raise MisuseError(f"{store.spec} has no run {run_id!r}; `collector runs` lists them")
    session_id, node_id, status, started_at, ended_at, known = found
    if status not in FINAL_STATUSES or started_at is None:
        raise MisuseError(f"run {run_id} has not ended; import its log afterwards")
    if known:
        raise MisuseError(f"run {run_id} has {known:,} steps already")
    times = [step.unix_seconds for step in steps.values() if step.unix_seconds is not None]
    is_elapsed = bool(times) and max(times) < _FIRST_UNIX_SECONDS
    if is_elapsed:
        _check_elapsed(steps)
        began = started_at.replace(tzinfo=timezone.utc).timestamp()
        for step in steps.values():
            step.unix_seconds = None if step.unix_seconds is None else began + step.unix_seconds
        times = [began + time for time in times]
    if times and not (started_at - _SLACK <= _utc(min(times)) and _utc(max(times)) <= ended_at + _SLACK):
        own = [row[0] for row in ended if row[1] - _SLACK <= _utc(min(times)) and _utc(max(times)) <= row[2] + _SLACK]
        raise MisuseError(
            f"the log is from {_utc(min(times)):%F %T} to {_utc(max(times)):%T}, {run_id} from {started_at:%F %T} to "
            f"{ended_at:%T} UTC; {f'it fits {own[0]}' if len(own) == 1 else 'name its own run'}"
        )
    common = {"session_id": session_id, "node_id": node_id, "run_id": run_id, "rank": 0}
    tables = _tables(steps, items_per_step, has_places=not is_elapsed)
    tables["results"] += _last_values(steps, ended_at)
    with store.transaction() as writing:
        for table, rows in tables.items():
            if rows:
                writing.register("incoming", pa.Table.from_pylist([{**common, **row} for row in rows]))
                writing.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM incoming')  # noqa: S608 - ours
                writing.unregister("incoming")
        summarize_runs(writing, [run_id], utc_now())
    names = [row["name"] for row in tables["run_events"] if row["event"] == "metric"]
    metrics = ", ".join(dict.fromkeys(names)) if len(set(names)) < 4 else "metrics"
    untimed = "" if times else "; the log has no times (a column such as time or elapsed), so steps have no durations"
    if is_elapsed:
        untimed = "; its times are elapsed seconds, so steps have durations, but no measured phase"
    stored = f"{counted(len(steps), 'step')} and {counted(len(names), 'value')} of {metrics}"
    return f"{stored} stored for run {run_id}{untimed}"


def _check_elapsed(steps: Mapping[int, LoggedStep]) -> None:
    """Refuse times that fall, such as durations of single steps. Raises MisuseError."""
    ordered = [steps[number].unix_seconds for number in sorted(steps)]
    if any(later < earlier for earlier, later in pairwise(time for time in ordered if time is not None)):
        raise MisuseError("times of the log fall from one step to a later one, so they are no elapsed seconds")


_RUN = """
SELECT session_id, node_id, status, started_at, ended_at, (SELECT count(*) FROM steps WHERE steps.run_id = runs.run_id)
FROM runs WHERE run_id = ?"""

_ENDED = "SELECT run_id, started_at, ended_at FROM runs WHERE started_at IS NOT NULL AND ended_at IS NOT NULL"


def _tables(
    steps: Mapping[int, LoggedStep], items_per_step: float | None, *, has_places: bool
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table; those of steps without a time have none either, and count in no duration.

    Without `has_places` only the differences of the times are known, so there is no measured phase.
    """
    when = {number: _utc(step.unix_seconds) for number, step in steps.items() if step.unix_seconds}
    seconds: dict[int, float] = {}
    for (before, one), (number, other) in pairwise(steps.items()):
        if one.unix_seconds and other.unix_seconds and other.unix_seconds > one.unix_seconds:
            seconds[number] = (other.unix_seconds - one.unix_seconds) / (number - before)
    usual = statistics.median(seconds.values()) if seconds else 0.0
    numbers = list(steps)
    counts = {number: number - before for before, number in pairwise(numbers)}
    timed = [number for number, took in seconds.items() if took <= _GAP_RATIO * usual]
    rows: dict[str, list[dict[str, Any]]] = {"steps": [], "run_events": [], "results": []}
    for number, step in steps.items():
        row = {"time": when.get(number), "phase": "measure", "step": number, "items": items_per_step}
        rows["steps"].append({**row, "wall_seconds": seconds[number] if number in timed else None})
        for name, value in step.values.items():
            detail = json.dumps({"step": number, "value": value})
            rows["run_events"].append({"time": when.get(number), "event": "metric", "name": name, "detail": detail})
    if timed:
        began, ended = min(when.values()), max(when.values())
        ends = (("measure", began), ("teardown", ended)) if has_places else ()
        rows["run_events"] += [{"time": time, "event": "phase", "name": name, "detail": None} for name, time in ends]
        taken = sum(counts[number] for number in timed)
        rate = taken / sum(counts[number] * seconds[number] for number in timed)
        unit = "steps/s" if items_per_step is None else "items/s"
        figures = (("throughput", rate * (items_per_step or 1), unit), ("steps", float(taken), None))
        result = {"time": ended, "phase": "measure"}
        rows["results"] = [{**result, "name": name, "value": value, "unit": unit} for name, value, unit in figures]
    return rows


def _last_values(steps: dict[int, LoggedStep], ended_at: datetime) -> Iterator[dict[str, Any]]:
    """Yield the results that are the last values of a log's metrics; of an accuracy, only a percentage."""
    for name, unit, metrics in _RESULTS:
        metric = next((one for one in metrics if any(one in step.values for step in steps.values())), None)
        last = next((step for step in reversed(steps.values()) if metric in step.values), None)
        if last and metric and (unit is None or last.values[metric] > 1):
            yield {"time": ended_at, "phase": None, "name": name, "value": last.values[metric], "unit": unit}


def _utc(unix_seconds: float) -> datetime:
    """Return the naive time in UTC."""
    return datetime.fromtimestamp(unix_seconds, timezone.utc).replace(tzinfo=None)
