"""The collector's clock, in the form of the store."""

from datetime import datetime, timezone


def utc_now() -> datetime:
    """Return the current UTC time without a zone, as in DuckDB's TIMESTAMP."""
    return datetime.now(timezone.utc).replace(tzinfo=None)
