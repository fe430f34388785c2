"""What the agent writes with each message into its spool, and who reads a spool that was carried by hand looks at."""

import zlib

# SQLite's `user_version` of a spool.
SPOOL_VERSION = 2


def message_checksum(session_uuid: object, node_uuid: object, number: object, records: object) -> int | None:
    """Return the CRC-32 of a message and whose it is; None: a disk has made something else of them than was written."""
    if not isinstance(number, int) or not isinstance(records, bytes):
        return None
    return zlib.crc32(records, zlib.crc32(f"{session_uuid} {node_uuid} {number}".encode(errors="replace")))
