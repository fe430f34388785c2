"""Checks of names from agents: own identities, bounded lengths, a bounded number of labels."""

import json
from collections.abc import Iterator, Mapping

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded, Piece
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
        for piece in decoded.tables.get(name, ()):
            for column in set(columns) & piece.texts.keys():
                if any(len(text) > MAX_NAME_CHARACTERS for text in _texts(piece, column)):
                    raise RejectedRecordsError(f"{name}.{column} is longer than {MAX_NAME_CHARACTERS} characters")
            if any(_count_labels(labels) > MAX_LABELS for labels in _texts(piece, "labels")):
                raise RejectedRecordsError(f"{name}.labels has more than {MAX_LABELS} labels")
    for piece in decoded.tables.get("sessions", ()):
        for uuid_column, stamped in _IDENTITIES.items():
            if any(key(uuid) != getattr(piece, stamped) for uuid in _texts(piece, uuid_column)):
                raise RejectedRecordsError(f"sessions.{uuid_column} is not that of the stream it came on")


def _count_labels(labels: str) -> int:
    try:
        parsed = json.loads(labels)
    except (ValueError, RecursionError):
        return 0  # stored as a text
    return len(parsed) if isinstance(parsed, dict) else 0


def _texts(piece: Piece, column: str) -> Iterator[str]:
    if column in piece.texts:
        yield from (text for text in piece.texts[column].to_pylist() if text is not None)
