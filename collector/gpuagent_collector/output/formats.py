"""The formats in which commands print data."""

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
