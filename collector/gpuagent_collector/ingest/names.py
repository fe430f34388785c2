"""Checks of names from agents: own identities, bounded lengths, a bounded number of labels."""

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded, join
from gpuagent_common.keys import key

MAX_LABELS = 64
MAX_NAME_CHARACTERS = 1000

# Table → columns by which people and commands select.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "sessions": ("session_uuid", "node_uuid", "hostname", "platform", "agent_version"),
    "run_requests": ("run_id", "experiment", "workload", "environment", "interference"),
}

# Column of `sessions` → the stamped column, which must hold its key.
_IDENTITIES = {"session_uuid": "session_id", "node_uuid": "node_id"}


def check_names(decoded: Decoded) -> None:
    """Reject names that no genuine agent sends.

    Raises:
        RejectedRecordsError: a session claims to be another, a name is too long, or there are too many labels.
    """
    for name, columns in _NAMES.items():
        if pieces := decoded.tables.get(name):
            table = join(pieces)
            for column in set(columns) & set(table.column_names):
                longest = pc.max(pc.utf8_length(table[column])).as_py()
                if longest is not None and longest > MAX_NAME_CHARACTERS:
                    raise RejectedRecordsError(f"{name}.{column} is longer than {MAX_NAME_CHARACTERS} characters")
            if any(_count_labels(labels) > MAX_LABELS for labels in _texts(table, "labels")):
                raise RejectedRecordsError(f"{name}.labels has more than {MAX_LABELS} labels")
    if pieces := decoded.tables.get("sessions"):
        table = join(pieces)
        for uuid_column, id_column in _IDENTITIES.items():
            stamped = table[id_column][0].as_py()
            if any(key(uuid) != stamped for uuid in _texts(table, uuid_column)):
                raise RejectedRecordsError(f"sessions.{uuid_column} is not that of the stream it came on")


def _count_labels(labels: str) -> int:
    try:
        parsed = json.loads(labels)
    except (ValueError, RecursionError):
        return 0  # stored as a text
    return len(parsed) if isinstance(parsed, dict) else 0


def _texts(table: pa.Table, column: str) -> Iterator[str]:
    if column in table.column_names:
        yield from (text for text in table[column].to_pylist() if text is not None)
