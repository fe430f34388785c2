"""Rows on their way to the spool: collected by row without impossible readings, encoded by column."""

import logging
import math
import sys
import threading
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from gpuagent.sources.source import Computed, Reading, Value
from gpuagent_common.ranges import are_possible, find_impossible
from gpuagent_proto.v1 import records_pb2
from gpuagent_proto.v1.agent_service_pb2 import GpuNow

_LOG = logging.getLogger(__name__)

# The interval of the counts of a column that stays impossible.
_REPORT_NANO = 10_000_000_000

# An integer can be too large for a float.
_LARGEST = 10**300


@dataclass(slots=True)
class _Tally:
    from_unix_nano: int
    unix_nano: int
    readings: int = 0
    value: float = 0.0


@dataclass(slots=True)
class ImpossibleReadings:
    """The impossible readings since they were last recorded, by source, table and column."""

    _tallies: dict[tuple[str | None, str, str], _Tally] = field(default_factory=dict)
    _logged: set[tuple[str | None, str, str]] = field(default_factory=set)

    def drop(self, source: str | None, table: str, values: Mapping[str, Value], unix_nano: int) -> Mapping[str, Value]:
        """Return `values` with None in the place of each impossible one, which is counted."""
        found = find_impossible(table, values)
        if not found:
            return values
        for column, value in found:
            tally = self._tallies.setdefault((source, table, column), _Tally(unix_nano, unix_nano))
            tally.readings += 1
            tally.unix_nano, tally.value = unix_nano, float(min(max(value, -_LARGEST), _LARGEST))
            # Log the first of each column, not one a second.
            place = (source, table, column)
            if place not in self._logged:
                self._logged.add(place)
                _LOG.warning("%s: %s is %s, which is impossible; it is left out", source or table, column, value)
        return {**values, **dict.fromkeys(each.column for each in found)}

    def take_rows(self, unix_nano: int | None) -> Iterator[dict[str, Value]]:
        """Yield a row of `impossible_readings` for each column that is due at `unix_nano`; None: for all."""
        for place, tally in list(self._tallies.items()):
            if unix_nano is not None and unix_nano - tally.from_unix_nano < _REPORT_NANO:
                continue
            del self._tallies[place]
            source, table, column = place
            yield {
                "time": tally.unix_nano,
                "from_time": tally.from_unix_nano,
                "source": source,
                "quantity": f"{table}.{column}",
                "readings": tally.readings,
                "value": tally.value,
            }


Row = Mapping[str, Value]
Tables = dict[str, list[Row]]

# The name of a source, and what it read in one tick.
SourceReadings = tuple[str, Sequence[Reading]]

# Table and key.
_RowKey = tuple[str, int | str | None]

_TOO_LARGE = 2**63

# Tables whose rows are no samples; they survive a full spool.
_NEVER_DROPPED = frozenset({"gpu_events", "owner_steps", "owners", "run_events"})


@dataclass(slots=True)
class RecordBuffer:
    """A buffer of rows from every thread until the next flush.

    Samples may be dropped when the spool is full; records (run events, results, gaps) never are. Readings of samplers
    become rows when the buffer is drained. Many at once cost a fraction of as many one by one between sleeps, because
    code and data are in the processor's caches. Then impossible values become None; `impossible_readings` counts them.
    """

    _ticks: list[tuple[int, Sequence[SourceReadings]]] = field(default_factory=list)
    _impossible: ImpossibleReadings = field(default_factory=ImpossibleReadings)
    _samples: Tables = field(default_factory=dict)
    _records: Tables = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_samples(self, table: str, rows: Iterable[Row]) -> None:
        """Add rows that may be dropped when the spool is full."""
        with self._lock:
            self._samples.setdefault(table, []).extend(rows)

    def add_tick(self, unix_nano: int, readings: Sequence[SourceReadings]) -> None:
        """Add the readings of one tick; those of one table and key become one row."""
        with self._lock:
            self._ticks.append((unix_nano, readings))

    def add_record(self, table: str, row: Row) -> None:
        """Add a row that is never dropped."""
        with self._lock:
            self._records.setdefault(table, []).append(row)

    def drain(self, *, is_last: bool = False) -> tuple[Tables, Tables]:
        """Return (samples, records) since the last drain, with the samples of each GPU next to each other.

        In that order a store needs a third less of its disk for them. The last drain has all counts of impossible
        readings, others those that are due.
        """
        with self._lock:
            ticks, samples, records = self._ticks, self._samples, self._records
            self._ticks, self._samples, self._records = [], {}, {}
        for tables in (samples, records):
            for table, rows in tables.items():
                checked = [self._check(None, table, row, _time_of(row)) for row in rows]
                tables[table] = [row for row in checked if row]
        made = self._make_rows(ticks, checked=False)
        if not all(self._are_possible(table, rows) for table, rows in made.items()):
            made = self._make_rows(ticks, checked=True)
        for table, rows in made.items():
            (records if table in _NEVER_DROPPED else samples).setdefault(table, []).extend(rows)
        for rows in samples.values():
            rows.sort(key=lambda row: str(row.get("device_id")))
        if is_last or ticks:
            counts = list(self._impossible.take_rows(None if is_last else ticks[-1][0]))
            if counts:
                records.setdefault("impossible_readings", []).extend(counts)
        return samples, records

    def _make_rows(self, ticks: Iterable[tuple[int, Sequence[SourceReadings]]], *, checked: bool) -> Tables:
        """Return the rows of the ticks; `checked`: without impossible values, which are counted."""
        made: Tables = {}
        for unix_nano, readings in ticks:
            merged: dict[_RowKey, dict[str, Value]] = {}
            for source, read in readings:
                for table, values, key in read:
                    row = merged.get((table, key))
                    if row is None:
                        row = merged[table, key] = {"time": unix_nano}
                    is_known = not checked and type(values) is not Computed
                    row.update(values if is_known else self._check(source, table, values, unix_nano, checked=checked))
            for (table, _), row in merged.items():
                if len(row) > 1:  # more than its time
                    made.setdefault(table, []).append(row)
        return made

    def _are_possible(self, table: str, rows: Sequence[Row]) -> bool:
        try:
            return are_possible(table, rows)
        except TypeError:  # found again, and logged, where it is looked for row by row
            return False

    def _check(self, source: str | None, table: str, values: Row, unix_nano: int, *, checked: bool = True) -> Row:
        """Return `values` without impossible ones; nothing where they cannot be compared, such as a text."""
        try:
            known = values.all() if type(values) is Computed else values
            return self._impossible.drop(source, table, known, unix_nano) if checked else known
        except Exception:  # noqa: BLE001
            # A bug in one source must not stop the others, nor the pipeline.
            _LOG.exception("a reading for %s", table)
            return {}


def _time_of(row: Row) -> int:
    time = row.get("time")
    return time if isinstance(time, int) else 0


def split_rows(tables: Mapping[str, Sequence[Row]], limit: int) -> Iterator[Tables]:
    """Yield the rows of `tables` in parts of at most `limit` rows, in their order."""
    part: Tables = {}
    free = limit
    for name, rows in tables.items():
        start = 0
        while start < len(rows):
            taken = rows[start : start + free]
            part[name] = list(taken)
            start, free = start + len(taken), free - len(taken)
            if free == 0:
                yield part
                part, free = {}, limit
    if part:
        yield part


def encode_records(tables: Mapping[str, Sequence[Row]]) -> bytes:
    """Return a serialised Records of `tables`.

    A column that holds a str in any row is text, one that holds a float is float64, else int64. A column that a row
    lacks is NULL, and so are a float that is not finite and an integer that exceeds 64 bits: NVML and the kernel report
    some absent figures as the largest unsigned number. Raises ValueError: a column mixes text with numbers.
    """
    records = records_pb2.Records()
    for name, rows in tables.items():
        if rows:
            table = records.tables.add(name=name, rows=len(rows))
            for column in dict.fromkeys(column for row in rows for column in row):
                values = [row.get(column) for row in rows]
                _add_column(table, column, values if _are_storable(values) else list(map(_drop_unstorable, values)))
    return records.SerializeToString()


def _are_storable(values: Sequence[Value]) -> bool:
    """Return True if surely all values can be stored: a look at a column costs a fraction of one at each value."""
    kinds = set(map(type, values)) - {type(None)}
    present: list[Any] = [value for value in values if value is not None]
    if kinds == {float}:
        # A sum with a number that is not finite is not finite; one that overflows is looked at again.
        return math.isfinite(sum(present))
    if kinds == {int}:
        return bool(min(present) >= -_TOO_LARGE and max(present) < _TOO_LARGE)
    return kinds == {str}


def _drop_unstorable(value: Value) -> Value:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if isinstance(value, int) and not -_TOO_LARGE <= value < _TOO_LARGE else value


def _add_column(table: records_pb2.Table, name: str, values: Sequence[Value]) -> None:
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return
    column = table.columns.add(name=name)
    if None in values:
        bits = bytearray((len(values) + 7) // 8)
        for position, value in enumerate(values):
            if value is not None:
                bits[position >> 3] |= 1 << (position & 7)
        column.validity = bytes(bits)
    # The bitmap marks the zeros in the place of absent values.
    numbers: list[Any] = [0 if value is None else value for value in values]
    try:
        if str in kinds:
            pieces: list[bytes] = []
            for value in values:
                if value is not None and not isinstance(value, str):
                    raise TypeError(f"{value!r} is among texts")
                pieces.append((value or "").encode("utf-8", "replace"))
            column.texts.offsets = _little_endian(array("i", accumulate(map(len, pieces), initial=0)))
            column.texts.utf8 = b"".join(pieces)
        elif float in kinds:
            column.doubles = _little_endian(array("d", numbers))
        else:
            column.integers = _little_endian(array("q", numbers))
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{table.name}.{name}: {error}") from error


def _little_endian(values: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


# Older readings are not shown. Processes are listed once a second.
_RECENT_NANO = 5_000_000_000

_COLUMNS = [field.name for field in GpuNow.DESCRIPTOR.fields if field.name != "run_ids"]


@dataclass(slots=True)
class LatestGpus:
    """The last value of each figure and when it was read, by GPU; the runs with processes there by GPU and process."""

    _figures: dict[Value, dict[str, tuple[int, float]]] = field(default_factory=dict)
    _holders: dict[tuple[Value, Value], tuple[int, str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, table: str, rows: Iterable[Row]) -> None:
        """Keep what rows of `table` say of GPUs."""
        if table == "gpu_samples":
            with self._lock:
                for row in rows:
                    figures = self._figures.setdefault(row.get("device_id"), {})
                    for column in _COLUMNS:
                        value, read = row.get(column), row["time"]
                        if isinstance(value, int | float) and isinstance(read, int):
                            figures[column] = (read, value)
        elif table == "gpu_process_samples":
            with self._lock:
                for row in rows:
                    run_id, read = row.get("run_id"), row["time"]
                    if isinstance(run_id, str) and isinstance(read, int):
                        self._holders[row.get("device_id"), row.get("pid")] = (read, run_id)

    def read(self, now_unix_nano: int | None = None) -> Iterator[GpuNow]:
        """Yield each GPU that runs have processes on, with its figures of the last 5 s and the identities of those."""
        since = (time.time_ns() if now_unix_nano is None else now_unix_nano) - _RECENT_NANO
        with self._lock:
            self._holders = {key: held for key, held in self._holders.items() if held[0] >= since}
            for device_id, figures in self._figures.items():
                runs = sorted({run_id for (device, _), (_, run_id) in self._holders.items() if device == device_id})
                if runs:
                    recent = {column: value for column, (read, value) in figures.items() if read >= since}
                    yield GpuNow(run_ids=runs, **recent)
