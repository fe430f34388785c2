"""The formats in which commands print and write data."""

from collections.abc import Mapping
from enum import Enum


class OutputFormat(Enum):
    """The formats in which data is printed."""

    # For people: as wide as the terminal, with colours where it has them.
    TABLE = "table"
    # An array of objects.
    JSON = "json"
    # A header line, then one line a row.
    CSV = "csv"
    # A table for issues and documents.
    MARKDOWN = "markdown"
    # A table for papers, of the packages booktabs and adjustbox.
    LATEX = "latex"


class FileFormat(Enum):
    """The formats of files of rows."""

    # Arrow IPC, which is Feather.
    ARROW = "arrow"
    # Parquet, compressed.
    PARQUET = "parquet"
    # A header line, then one line a row.
    CSV = "csv"
    # One object a line.
    JSON_LINES = "jsonl"
    # An array of objects.
    JSON = "json"
    # A table for issues and documents.
    MARKDOWN = "markdown"


# Ending of a file's name → its format.
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
