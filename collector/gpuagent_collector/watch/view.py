"""The view of `collector watch`, and its printing."""

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Generic

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from gpuagent_collector.present.data import print_table
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_collector.present.terminal import plain_console, plain_table
from gpuagent_collector.present.values import as_json
from gpuagent_collector.watch.columns import (
    GPU_COLUMNS,
    NODE_COLUMNS,
    RUN_COLUMNS,
    TREND_COLUMN,
    Column,
    GpuRow,
    Row,
    cell,
    fitting,
)
from gpuagent_collector.watch.snapshot import NodeNow, Snapshot
from gpuagent_common.text import counted


class Scope(Enum):
    """The lists that are shown."""

    ALL = "all"
    NODES = "nodes"
    GPUS = "GPUs"
    RUNS = "runs"


_COLUMNS: Mapping[Scope, Sequence[Column[Any]]] = {
    Scope.NODES: NODE_COLUMNS,
    Scope.GPUS: GPU_COLUMNS,
    Scope.RUNS: RUN_COLUMNS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The user's choice.

    Attributes:
        sort_by: title of a column; lists without this column keep their own order. None: all do.
        reverse: smallest figures first, texts from the end of the alphabet.
        words: a row is shown if each of them occurs in it.
    """

    scope: Scope = Scope.ALL
    sort_by: str | None = None
    reverse: bool = False
    words: str = ""

    def next_scope(self, step: int = 1) -> "View":
        """Return the view of the scope that is `step` further."""
        scopes = list(Scope)
        return self.in_scope(scopes[(scopes.index(self.scope) + step) % len(scopes)])

    def in_scope(self, scope: Scope) -> "View":
        """Return the view of a scope; an order that it does not have is dropped."""
        return replace(self, scope=scope, sort_by=self.sort_by if self.sort_by in _titles(scope) else None)

    def sorted_by_next(self, step: int = 1) -> "View":
        """Return the view in the order of the column that is `step` further; after the last comes the lists' own."""
        titles = [None, *_titles(self.scope)]
        return replace(self, sort_by=titles[(titles.index(self.sort_by) + step) % len(titles)], reverse=False)


def _titles(scope: Scope) -> list[str]:
    """Return the titles by which a scope can be sorted, each once."""
    chosen = _COLUMNS.values() if scope is Scope.ALL else (_COLUMNS[scope],)
    return list(dict.fromkeys(column.title for columns in chosen for column in columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[Row]):
    """One list: its columns, and its rows after filter and order. `row_name` completes the sentence "no …"."""

    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    row_name: str


def select(snapshot: Snapshot, view: View, trends: Mapping[int, str] | None = None) -> dict[Scope, Listing[Any]]:
    """Return the three lists of a snapshot; those outside the view's scope are empty. `trends` are by device_id."""
    gpus = (
        GpuRow(node=node, gpu=gpu, trend=(trends or {}).get(gpu.device_id))
        for node in snapshot.nodes
        for gpu in node.gpus
    )
    nodes = sorted(snapshot.nodes, key=lambda node: node.has_left)
    rows: dict[Scope, tuple[Iterable[Any], str]] = {
        Scope.NODES: (nodes, "node has delivered in the last hour"),
        Scope.GPUS: (gpus, "GPU was found"),
        Scope.RUNS: (snapshot.runs, "run was under way in the last hour"),
    }
    return {
        scope: Listing(
            columns=_COLUMNS[scope],
            rows=_arrange(found, _COLUMNS[scope], view) if view.scope in (Scope.ALL, scope) else (),
            row_name=f"{name}{' that matches the filter' if view.words else ''}",
        )
        for scope, (found, name) in rows.items()
    }


def _arrange(rows: Iterable[Row], columns: Sequence[Column[Row]], view: View) -> list[Row]:
    """Return the rows that match the filter, in order. Figures are not searched; rows without a value come last."""
    words = view.words.casefold().split()
    kept = [
        row
        for row in rows
        if all(
            any(word in (column.show(row) or "").casefold() for column in columns if not column.is_figure)
            for word in words
        )
    ]
    column = next((column for column in columns if column.title == view.sort_by), None)
    if column is None:
        return kept
    keyed = [(column.key(row), row) for row in kept]
    known = [(key, row) for key, row in keyed if key is not None]
    known.sort(key=lambda pair: pair[0], reverse=column.is_figure is not view.reverse)
    return [row for _, row in known] + [row for key, row in keyed if key is None]


def summary(snapshot: Snapshot) -> Iterator[tuple[str, str | None]]:
    """Yield the parts of a line that sums a snapshot up, each with its style."""
    gpus = [gpu for node in snapshot.nodes for gpu in node.gpus if gpu.is_whole]
    faults = (
        (sum(node.is_silent for node in snapshot.nodes), "silent", "red"),
        (sum(node.has_left for node in snapshot.nodes), "gone", "dim"),
    )
    if snapshot.trouble:
        yield snapshot.trouble, "red bold"
    held_back = sum(gpu.is_held_back is True for gpu in gpus)
    yield counted(len(snapshot.nodes), "node"), None
    yield from ((f"{number:,} {name}", style) for number, name, style in faults if number)
    yield counted(len(gpus), "GPU"), None
    if held_back:
        yield f"{held_back:,} held back", "yellow"
    yield f"{counted(sum(run.is_open for run in snapshot.runs), 'run')} under way", None


# Of a list on a terminal, however long the others are.
_LEAST_ROWS = 3

# Lines beside the rows: the summary, the prompt, and the names of what was read; of a list a blank and its header.
_LINES_AROUND, _LINES_OF_LIST = 3, 3

# The command that lists all rows of a list.
_WHOLE = {Scope.NODES: "nodes", Scope.GPUS: "watch", Scope.RUNS: "runs"}


def without_gone(listings: Mapping[Scope, Listing[Any]], height: int) -> Sequence[NodeNow]:
    """Return the listed nodes; those that have left only where a terminal has room for all lists, or few others are."""
    nodes: Sequence[NodeNow] = listings[Scope.NODES].rows
    if _LINES_AROUND + sum(len(listing.rows) + _LINES_OF_LIST for listing in listings.values()) <= height:
        return nodes
    here = sum(not node.has_left for node in nodes)
    return sorted(nodes, key=lambda node: node.has_left)[: max(here, _LEAST_ROWS)]


def rows_that_fit(rows: Mapping[Scope, int], height: int) -> dict[Scope, int]:
    """Return how many rows of each list a terminal has room for; the runs have what the nodes and GPUs leave."""
    left = height - _LINES_AROUND
    for number in rows.values():
        left -= _LINES_OF_LIST if number else _LINES_OF_LIST - 1
    shown = {}
    for scope, number in rows.items():
        most = left if scope is Scope.RUNS else left // 2
        # One line less for that which says how many there are more.
        shown[scope] = number if number <= most else max(most - 1, min(number, _LEAST_ROWS))
        left -= shown[scope] + (shown[scope] < number)
    return shown


def print_snapshot(snapshot: Snapshot, output_format: OutputFormat, place: Sequence[str] = ()) -> None:
    """Print everything that was read as JSON, or the lists of the live view in another format.

    A terminal has as many rows as it has room for. `place` are the words by which commands read the same.
    """
    if output_format is OutputFormat.JSON:
        fields: dict[str, Any] = asdict(snapshot) | {"taken_at": f"{snapshot.taken_at.isoformat()}Z"}
        for node in fields["nodes"]:
            for thing in (node, *node["gpus"]):
                thing.update(thing.pop("figures"))
        sys.stdout.write(f"{json.dumps(json.loads(as_json(fields)), indent=2)}\n")
        return
    console = plain_console(sys.stdout)
    separator = ""
    if output_format is OutputFormat.TABLE:
        console.print(summary_line(snapshot), soft_wrap=True)
        separator = "\n"
    listings = select(snapshot, View())
    shown = {scope: len(listing.rows) for scope, listing in listings.items()}
    if console.is_terminal:
        nodes = len(without_gone(listings, console.height))
        # The line that says how many there are more takes one of the terminal.
        shown = rows_that_fit(shown | {Scope.NODES: nodes}, console.height - (nodes < shown[Scope.NODES]))
    for scope, listing in listings.items():
        sys.stdout.write(separator)
        separator = "\n"
        if output_format is OutputFormat.TABLE:
            _print_list(console, listing, shown[scope], shlex.join(["collector", _WHOLE[scope], *place]))
        else:
            values = {
                column.title: [
                    column.key(row) if (output_format is OutputFormat.CSV) else column.show(row) for row in listing.rows
                ]
                for column in listing.columns
                if column is not TREND_COLUMN
            }
            print_table(pa.table(values), output_format)
        sys.stdout.flush()


def _print_list(console: Console, listing: Listing[Any], most: int, whole: str) -> None:
    """Print the first rows of a list, and the command that lists all where there are more."""
    if not listing.rows:
        console.print(Text(f"no {listing.row_name}", style="dim"))
        return
    table = plain_table()
    # As many of the columns as the terminal has room for.
    chosen = fitting(listing.columns, listing.rows, console.width)
    for column, width in chosen:
        table.add_column(column.title, justify=column.alignment, width=width, no_wrap=True)
    for row in listing.rows[:most]:
        table.add_row(*(cell(column, row, width) for column, width in chosen))
    console.print(table)
    if most < len(listing.rows):
        rest = f"… and {len(listing.rows) - most:,} more: {whole}"
        console.print(Text(rest, style="dim"), soft_wrap=True)


def summary_line(snapshot: Snapshot) -> Text:
    """Return a snapshot in one line."""
    return Text(" · ").join(Text(text, style=style or "") for text, style in summary(snapshot))
