"""The collector's clock, as the store keeps it."""

from datetime import datetime, timezone


def utc_now() -> datetime:
    """Return this moment in UTC, without a zone, as DuckDB's TIMESTAMP holds it."""
    return datetime.now(timezone.utc).replace(tzinfo=None)
