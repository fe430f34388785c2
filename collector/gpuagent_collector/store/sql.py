"""Small pieces of SQL."""

from pathlib import Path


def quoted(value: Path | str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + str(value).replace("'", "''") + "'"
