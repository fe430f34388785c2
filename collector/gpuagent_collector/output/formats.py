"""The formats in which commands print and write data."""

from collections.abc import Mapping
from enum import Enum


class OutputFormat(Enum):
    """How data is printed."""

    # For people: as wide as the terminal, colours where it has them.
    TABLE = "table"
    # An array of objects.
    JSON = "json"
    # A header line, then a line a row.
    CSV = "csv"
    # A table for issues and documents.
    MARKDOWN = "markdown"


class FileFormat(Enum):
    """How rows are written to a file."""

    # Arrow IPC, which is Feather.
    ARROW = "arrow"
    # Parquet, compressed.
    PARQUET = "parquet"
    # A header line, then a line a row.
    CSV = "csv"
    # An object a line.
    JSON_LINES = "jsonl"
    # An array of objects.
    JSON = "json"
    # A table for issues and documents.
    MARKDOWN = "markdown"


# Ending of a file's name → what is written into it.
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
