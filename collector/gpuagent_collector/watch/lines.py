"""Live lists as lines of text: one line a row, as many of the columns as fit."""

from collections.abc import Iterator, Sequence
from typing import Generic

from rich.cells import cell_len
from rich.text import Text

from gpuagent_collector.output.terminal import GAP
from gpuagent_collector.output.text import harmless
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.watch.columns import Column, Row

# Longer texts are cut, so that a long name does not take the room of all figures.
_WIDEST_TEXT = 24


class Layout(Generic[Row]):
    """Which columns have room, and how wide each is."""

    def __init__(self, columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> None:
        """Choose among `columns` for these rows, on lines of `width` cells."""
        widths = {column.title: _width(column, rows) for column in columns}
        room = width + GAP
        fitting: set[str] = set()
        for column in sorted((each for each in columns if widths[each.title]), key=lambda each: each.rank):
            room -= GAP + widths[column.title]
            if room < 0 and fitting:
                break
            fitting.add(column.title)
        self._chosen = [(column, widths[column.title]) for column in columns if column.title in fitting]

    def header(self) -> Text:
        """Return the line of titles."""
        return _joined(_cell(Text(column.title), width, column) for column, width in self._chosen)

    def line(self, row: Row) -> Text:
        """Return the line of a row."""
        return _joined(_cell(_value(column, row), width, column) for column, width in self._chosen)


def _width(column: Column[Row], rows: Sequence[Row]) -> int:
    """Return how wide a column is; one of texts that has none is left out: 0."""
    if column.width is not None:
        return max(column.width, len(column.title))
    widest = max((cell_len(harmless(column.show(row) or "")) for row in rows), default=0)
    return min(max(widest, len(column.title)), _WIDEST_TEXT) if widest else 0


def _value(column: Column[Row], row: Row) -> Text:
    text = column.show(row)
    if text is None:
        return Text(ABSENT, style="dim")
    return Text(harmless(text), style=(column.style and column.style(row)) or "")


def _cell(text: Text, width: int, column: Column[Row]) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.align("right" if column.is_figure else "left", width)
    return text


def _joined(cells: Iterator[Text]) -> Text:
    return Text(" " * GAP).join(cells)
