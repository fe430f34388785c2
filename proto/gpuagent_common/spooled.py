"""The version and checksums of a spool, for the agent and for `collector import`."""

import zlib

# SQLite's `user_version` of a spool.
SPOOL_VERSION = 2


def message_checksum(session_uuid: object, node_uuid: object, number: object, records: object) -> int | None:
    """Return the CRC-32 of a message and its origin; None: a damaged disk changed their types."""
    if not isinstance(number, int) or not isinstance(records, bytes):
        return None
    return zlib.crc32(records, zlib.crc32(f"{session_uuid} {node_uuid} {number}".encode(errors="replace")))
