"""Keys of what is named by long texts, sums of spooled messages, and invitations to runs on several nodes."""

import hashlib
import zlib
from collections.abc import Sequence


def key(uuid: str) -> int:
    """Return the signed 64-bit key of a node's, device's or session's UUID.

    Tables have this integer instead of the string: DuckDB inserts rows with integer keys about eight times faster.
    """
    return int.from_bytes(hashlib.blake2b(uuid.encode(), digest_size=8).digest(), "little", signed=True)


# SQLite's `user_version` of a spool.
SPOOL_VERSION = 2


def message_checksum(session_uuid: object, node_uuid: object, number: object, records: object) -> int | None:
    """Return the CRC-32 of a message and its origin; None: a damaged disk changed their types."""
    if not isinstance(number, int) or not isinstance(records, bytes):
        return None
    return zlib.crc32(records, zlib.crc32(f"{session_uuid} {node_uuid} {number}".encode(errors="replace")))


# Of a digest in a run's name: 80 bits, too many to find another text for it.
_CHARACTERS = 20


def make_invitation(parts: Sequence[str]) -> str:
    """Return the invitation for these texts, and no others: the job and its command."""
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest()


def invited_run(name: str, invitation: str) -> str:
    """Return the identity of the run with this name and invitation."""
    return f"{name}-{hashlib.sha256(invitation.encode()).hexdigest()[:_CHARACTERS]}"


def is_invited(run_id: str, invitation: str) -> bool:
    """Return whether `invitation` is for the run `run_id`."""
    return run_id == invited_run(run_id.rpartition("-")[0], invitation)
