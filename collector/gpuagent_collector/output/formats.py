"""The formats in which commands print and write data."""

from collections.abc import Mapping
from enum import Enum


class OutputFormat(Enum):
    """How data is printed."""

    TABLE = "table"
    """For people: as wide as the terminal, colours where it has them."""
    JSON = "json"
    """An array of objects."""
    CSV = "csv"
    """A header line, then a line a row."""
    MARKDOWN = "markdown"
    """A table for issues and documents."""


class FileFormat(Enum):
    """How rows are written to a file."""

    ARROW = "arrow"
    """Arrow IPC, which is Feather."""
    PARQUET = "parquet"
    """Parquet, compressed."""
    CSV = "csv"
    """A header line, then a line a row."""
    JSON_LINES = "jsonl"
    """An object a line."""
    JSON = "json"
    """An array of objects."""
    MARKDOWN = "markdown"
    """A table for issues and documents."""


ENDINGS: Mapping[str, FileFormat] = {
    ".arrow": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".jsonl": FileFormat.JSON_LINES,
    ".ndjson": FileFormat.JSON_LINES,
    ".json": FileFormat.JSON,
    ".md": FileFormat.MARKDOWN,
}
"""Ending of a file's name → what is written into it."""
