"""What agents may call things: identities that are their own, names of a bounded length, so many labels."""

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded
from gpuagent_common.keys import key

MAX_LABELS = 64
MAX_NAME_CHARACTERS = 1000

# Table → columns that people and commands choose by.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "sessions": ("session_uuid", "node_uuid", "hostname", "platform", "agent_version"),
    "run_requests": ("run_id", "experiment", "workload", "environment", "interference"),
}

# Column of `sessions` → what the collector stamped, which must be its key.
_IDENTITIES = {"session_uuid": "session_id", "node_uuid": "node_id"}


def check_names(decoded: Decoded) -> None:
    """Refuse what no agent of ours says.

    Raises:
        RejectedRecordsError: a session that claims to be another, a name that is too long, or too many labels.
    """
    for name, columns in _NAMES.items():
        for table in decoded.tables.get(name, ()):
            for column in set(columns) & set(table.column_names):
                _check_length(name, column, table)
            for labels in _texts(table, "labels"):
                _check_labels(name, labels)
    for table in decoded.tables.get("sessions", ()):
        _check_identity(table)


def _check_length(name: str, column: str, table: pa.Table) -> None:
    longest = pc.max(pc.utf8_length(table[column])).as_py()
    if longest is not None and longest > MAX_NAME_CHARACTERS:
        raise RejectedRecordsError(f"{name}.{column} is longer than {MAX_NAME_CHARACTERS} characters")


def _check_labels(name: str, labels: str) -> None:
    try:
        parsed = json.loads(labels)
    except (ValueError, RecursionError):
        return  # kept as a text
    if isinstance(parsed, dict) and len(parsed) > MAX_LABELS:
        raise RejectedRecordsError(f"{name}.labels has more than {MAX_LABELS} labels")


def _check_identity(table: pa.Table) -> None:
    for uuid_column, id_column in _IDENTITIES.items():
        stamped = table[id_column][0].as_py()
        if any(key(uuid) != stamped for uuid in _texts(table, uuid_column)):
            raise RejectedRecordsError(f"sessions.{uuid_column} is not that of the stream it came on")


def _texts(table: pa.Table, column: str) -> Iterator[str]:
    if column in table.column_names:
        yield from (text for text in table[column].to_pylist() if text is not None)
