"""Checks of rows in messages: what is no row of its table, and values beyond physical limits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded, Piece
from gpuagent_collector.json_cells import is_flat_object, is_list_of_texts, parse_json
from gpuagent_collector.store.columns import USUAL_TEXT_BYTES
from gpuagent_common.keys import key
from gpuagent_common.limits import MAX_LABELS, MAX_NAME_CHARACTERS
from gpuagent_common.ranges import Range, find_parts, find_range

# A program's line of events as JSON is shorter: up to three times its 64 KiB, where each character is escaped.
MAX_TEXT_BYTES = 256 * 1024

# Table → columns by which people and commands select, and facts that tables show.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "sessions": (
        *("session_uuid", "node_uuid", "hostname", "platform", "agent_version", "python_version", "virtualization"),
        *("container", "orchestrator", "os", "kernel", "architecture", "boot_id", "cpu_model", "driver_version"),
        *("cuda_driver_version", "cloud_provider", "instance_type"),
    ),
    "session_devices": ("uuid", "name", "architecture", "compute_capability", "pci_bus_id"),
    "run_requests": ("run_id", "experiment", "workload", "environment", "interference"),
    "run_states": ("status",),
    "owner_steps": ("step",),
    "owners": ("kind", "job", "number", "title", "user_name", "account", "place"),
}

# Tables that make runs: rows without a run's identity would be a run without one.
_OF_RUNS = ("run_requests", "run_states")

# Column of `sessions` → the stamped column, which must hold its key.
_IDENTITIES = {"session_uuid": "session_id", "node_uuid": "node_id"}


def _are_labels(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= MAX_LABELS and is_list_of_texts(list(value.values()))


# Table → JSON column → its form, in words and as a check. Events' details are kept whatever they are: readers pick
# single values out of them in SQL.
_FORMS: Mapping[str, Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "sessions": {"labels": (f"an object of at most {MAX_LABELS} texts", _are_labels)},
    "run_requests": {
        "labels": (f"an object of at most {MAX_LABELS} texts", _are_labels),
        "parameters": ("an object of texts and numbers", is_flat_object),
        "command": ("a list of texts", is_list_of_texts),
    },
    "owners": {"command": ("a list of texts", is_list_of_texts)},
}


def check_rows(decoded: Decoded) -> dict[str, int]:
    """Reject rows that no genuine agent sends; return the most bytes of a text by column, of those longer than usual.

    Raises RejectedRecordsError: a session claims to be another, a text is too long, or JSON has another form.
    """
    if any(len(run_id) > MAX_NAME_CHARACTERS for run_id in decoded.run_ids):
        raise RejectedRecordsError(f"a run_id is longer than {MAX_NAME_CHARACTERS:,} characters")
    longest: dict[str, int] = {}
    for table, pieces in decoded.tables.items():
        for piece in pieces:
            if table in _OF_RUNS and ("run_id" not in piece.texts or piece.texts["run_id"].null_count):
                raise RejectedRecordsError(f"{table}.run_id is missing")
            for column, size_bytes in _check_lengths(table, piece):
                longest[column] = max(size_bytes, longest.get(column, 0))
            _check_forms(table, piece)
    for piece in decoded.tables.get("sessions", ()):
        for uuid_column, stamped in _IDENTITIES.items():
            if any(key(uuid) != getattr(piece, stamped) for uuid in _texts(piece, uuid_column)):
                raise RejectedRecordsError(f"sessions.{uuid_column} is not that of the stream it came on")
    return longest


def _check_lengths(table: str, piece: Piece) -> Iterator[tuple[str, int]]:
    """Yield the columns with texts longer than usual, each with the most bytes of one."""
    names = _NAMES.get(table, ())
    for column, texts in piece.texts.items():
        # No text is longer than all together.
        if texts.nbytes <= USUAL_TEXT_BYTES:
            continue
        longest_bytes = pc.max(pc.binary_length(cast("pa.StringArray", texts))).as_py() or 0
        if column in names:
            if longest_bytes > MAX_NAME_CHARACTERS < pc.max(pc.utf8_length(cast("pa.StringArray", texts))).as_py():
                raise RejectedRecordsError(f"{table}.{column} is longer than {MAX_NAME_CHARACTERS:,} characters")
        elif longest_bytes > MAX_TEXT_BYTES:
            raise RejectedRecordsError(f"{table}.{column} is longer than {MAX_TEXT_BYTES:,} bytes")
        if longest_bytes > USUAL_TEXT_BYTES:
            yield column, longest_bytes


def _check_forms(table: str, piece: Piece) -> None:
    for column, (form, fits) in _FORMS.get(table, {}).items():
        for text in _texts(piece, column):
            try:
                is_right = fits(parse_json(text))
            except ValueError:
                is_right = False
            if not is_right:
                raise RejectedRecordsError(f"{table}.{column} is not {form}")


def _texts(piece: Piece, column: str) -> list[str]:
    texts = piece.texts[column].unique().to_pylist() if column in piece.texts else []
    return [text for text in texts if text is not None]


# The table of the counts.
COUNTS = "impossible_readings"


class Checked(NamedTuple):
    """Rows with NULL in the place of each impossible value, and rows of `impossible_readings` that count them."""

    rows: pa.Table
    counts: Sequence[Mapping[str, object]]


def drop_impossible(table: str, rows: pa.Table) -> Checked:
    """Return the rows of `table`, joined from messages, without values that are impossible."""
    counts: list[Mapping[str, object]] = []
    for column in rows.column_names:
        limits = find_range(table, column)
        values: Any = rows[column].chunk(0)
        if limits is not None and _may_exceed(values, limits):
            lowest, highest = (pa.scalar(limit, pa.float64()).cast(values.type) for limit in limits)
            mask = pc.or_(pc.less(values, lowest), pc.greater(values, highest))
            rows = _drop(table, rows, column, mask, counts)
    for part, whole in find_parts(table).items():
        if part in rows.column_names and whole in rows.column_names:
            parts, wholes = (rows[column].chunk(0) for column in (part, whole))
            rows = _drop(table, rows, part, pc.greater(parts, wholes), counts)
    return Checked(rows, counts)


def _may_exceed(values: "pa.Array[Any]", limits: Range) -> bool:
    """Return False if surely no value exceeds the limits, after one pass over the numbers.

    As unsigned numbers the bits of negative integers, negative floats and NaN exceed those of all others.
    """
    kind = "<i8" if pa.types.is_integer(values.type) else "<f8"
    numbers: Any = values.buffers()[1]
    bits = np.frombuffer(numbers, "<u8", count=len(values), offset=8 * values.offset)
    return bool(bits.max() > np.array(limits.highest, kind).view("<u8"))


def _drop(table: str, rows: pa.Table, column: str, found: Any, counts: list[Mapping[str, object]]) -> pa.Table:
    """Return the rows without the values of a column at which `found` is true, and add their number to `counts`."""
    mask = found.fill_null(False)
    if not pc.any(mask).as_py():
        return rows
    counts += _count(f"{table}.{column}", column, rows.filter(mask))
    values: Any = rows[column].chunk(0)
    position = rows.column_names.index(column)
    return rows.set_column(position, column, pc.if_else(mask, pa.scalar(None, values.type), values))


def _count(quantity: str, column: str, rows: pa.Table) -> Iterator[Mapping[str, object]]:
    """Yield a row for each session with impossible values."""
    times = rows["time"] if "time" in rows.column_names else pa.nulls(rows.num_rows, pa.timestamp("us"))
    found = pa.table(
        {"session_id": rows["session_id"], "node_id": rows["node_id"], "time": times, "value": rows[column]}
    )
    groups = found.group_by(["session_id", "node_id"], use_threads=False).aggregate(
        [("time", "min"), ("time", "max"), ("value", "count"), ("value", "last")]
    )
    for group in groups.to_pylist():
        yield {
            "session_id": group["session_id"],
            "node_id": group["node_id"],
            "time": group["time_max"],
            "from_time": group["time_min"],
            "source": None,
            "quantity": quantity,
            "readings": group["value_count"],
            "value": float(group["value_last"]),
        }
