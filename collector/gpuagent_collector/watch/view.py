"""What the user has chosen to see: which list, in which order, filtered by what, and how far it is scrolled."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from gpuagent_collector.watch.columns import GPU_COLUMNS, NODE_COLUMNS, RUN_COLUMNS, Column, GpuRow, Row
from gpuagent_collector.watch.snapshot import NodeNow, RunNow, Snapshot


class Scope(Enum):
    """Which lists are shown."""

    ALL = "all"
    NODES = "nodes"
    GPUS = "GPUs"
    RUNS = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The user's choice.

    Attributes:
        sort_by: title of a column; lists that have none of this title keep their own order. None: all do.
        reverse: smallest figures first, texts from the end of the alphabet.
        words: only rows in which each of them stands are shown.
        offset: lines that are scrolled past.
    """

    scope: Scope = Scope.ALL
    sort_by: str | None = None
    reverse: bool = False
    words: str = ""
    offset: int = 0

    def shown_next(self, step: int = 1) -> "View":
        """Return the view of the next scope, or of the one before."""
        scopes = list(Scope)
        return self.in_scope(scopes[(scopes.index(self.scope) + step) % len(scopes)])

    def in_scope(self, scope: Scope) -> "View":
        """Return the view of this scope from its beginning; an order that it does not know is dropped."""
        known = self.sort_by in _titles(scope)
        return replace(self, scope=scope, offset=0, sort_by=self.sort_by if known else None)

    def sorted_by_next(self, step: int = 1) -> "View":
        """Return the view in the order of the next column, or of the one before; behind the last is the lists' own."""
        titles = [None, *_titles(self.scope)]
        return replace(self, sort_by=titles[(titles.index(self.sort_by) + step) % len(titles)], reverse=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rows to show, filtered and in order."""

    nodes: Sequence[NodeNow] = field(default_factory=list)
    gpus: Sequence[GpuRow] = field(default_factory=list)
    runs: Sequence[RunNow] = field(default_factory=list)


def select(snapshot: Snapshot, view: View) -> Selection:
    """Return the rows of a snapshot that the user wants to see."""
    nodes = snapshot.nodes if view.scope in (Scope.ALL, Scope.NODES) else ()
    gpus = snapshot.nodes if view.scope in (Scope.ALL, Scope.GPUS) else ()
    runs = snapshot.runs if view.scope in (Scope.ALL, Scope.RUNS) else ()
    return Selection(
        nodes=_arranged(nodes, NODE_COLUMNS, view),
        gpus=_arranged((GpuRow(node=node, gpu=gpu) for node in gpus for gpu in node.gpus), GPU_COLUMNS, view),
        runs=_arranged(runs, RUN_COLUMNS, view),
    )


def _arranged(rows: Iterable[Row], columns: Sequence[Column[Row]], view: View) -> list[Row]:
    words = view.words.casefold().split()
    kept = [row for row in rows if not words or _matches(row, columns, words)]
    column = next((column for column in columns if column.title == view.sort_by), None)
    return _sorted(kept, column, reverse=view.reverse) if column else kept


def _matches(row: Row, columns: Sequence[Column[Row]], words: Sequence[str]) -> bool:
    """Return whether each word stands in one of the row's texts."""
    texts = [(column.show(row) or "").casefold() for column in columns if not column.is_figure]
    return all(any(word in text for text in texts) for word in words)


def _sorted(rows: Sequence[Row], column: Column[Row], *, reverse: bool) -> list[Row]:
    """Return rows by a column, those without a value last."""
    keyed = [(column.key(row), row) for row in rows]
    known = [(key, row) for key, row in keyed if key is not None]
    known.sort(key=lambda pair: pair[0], reverse=column.is_figure is not reverse)
    return [row for _, row in known] + [row for key, row in keyed if key is None]


def _titles(scope: Scope) -> list[str]:
    """Return the titles by which a scope can be sorted, each once."""
    lists: dict[Scope, Sequence[str]] = {
        Scope.NODES: [column.title for column in NODE_COLUMNS],
        Scope.GPUS: [column.title for column in GPU_COLUMNS],
        Scope.RUNS: [column.title for column in RUN_COLUMNS],
    }
    chosen = lists.values() if scope is Scope.ALL else (lists[scope],)
    return list(dict.fromkeys(title for titles in chosen for title in titles))
