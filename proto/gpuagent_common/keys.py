"""Integer keys of nodes, devices and sessions, the same on every agent and every collector."""

import hashlib


def key(uuid: str) -> int:
    """Return the signed 64-bit key of a node's, device's or session's UUID.

    Tables have this integer instead of the string: DuckDB inserts rows with integer keys about eight times faster.
    """
    return int.from_bytes(hashlib.blake2b(uuid.encode(), digest_size=8).digest(), "little", signed=True)
