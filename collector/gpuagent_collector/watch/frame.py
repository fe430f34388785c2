"""What is on the screen: a line that sums up, the lists as far as they fit, and a line of keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from gpuagent_collector.output.text import harmless
from gpuagent_collector.watch.columns import GPU_COLUMNS, NODE_COLUMNS, RUN_COLUMNS, Column, Row
from gpuagent_collector.watch.lines import Layout
from gpuagent_collector.watch.snapshot import Snapshot
from gpuagent_collector.watch.summary import summary
from gpuagent_collector.watch.view import Scope, Selection, View, select

# Lines that are not of the lists: two above, one below.
_AROUND = 3

_HELP = """\
tab           next list: all, nodes, GPUs, runs
1 2 3 4       all, nodes, GPUs, runs
s S           sort by the next column, by the one before
r             reverse the order
/             filter by words; Enter keeps them, Esc drops them
↑ ↓ j k       a line up or down
PgUp PgDn     a page up or down; space, too, goes down
Home End      to the beginning, to the end
? h           these keys
q Ctrl-C      leave

GPU is the share of time in which any kernel ran; SM is how many of the
multiprocessors were busy, where the GPU tells. A node without a sample in
the last 30 s is silent. Nodes not heard of for an hour, and runs that ended
before that, are not shown.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What a frame is made of beside snapshot and view.

    Attributes:
        width, height: of the terminal, in cells.
        source: what is read, for people.
        trouble: why the snapshot is not the newest; None: it is.
        typed: words being typed as a filter; None: none are.
        helping: whether the keys are explained in place of the lists.
    """

    width: int
    height: int
    source: str
    trouble: str | None = None
    typed: str | None = None
    helping: bool = False

    @property
    def page(self) -> int:
        """Lines that the lists have."""
        return max(1, self.height - _AROUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the lists; `header` is that of its list, to be shown when it has been scrolled past."""

    text: Text
    header: Text


def snapshot_lines(snapshot: Snapshot, width: int) -> Iterator[Text]:
    """Yield everything, for a terminal that is not live or for a file."""
    yield _summary(snapshot)
    yield Text()
    for line in _body(select(snapshot, View()), View(), width):
        line.text.rstrip()
        yield line.text


def compose(snapshot: Snapshot, view: View, screen: Screen) -> tuple[list[Text], View]:
    """Return the lines of the terminal, `screen.height` of them, and the view with an offset that is not too far."""
    body = _help() if screen.helping else _body(select(snapshot, view), view, screen.width)
    view = replace(view, offset=max(0, min(view.offset, len(body) - screen.page)))
    shown = body[view.offset : view.offset + screen.page]
    texts = [shown[0].header, *(line.text for line in shown[1:])] if shown else []
    lines = [
        _title(snapshot, screen),
        _summary(snapshot),
        *texts,
        *([Text()] * (screen.page - len(texts))),
        _keys(view, screen, len(body)),
    ]
    return lines[: screen.height], view


def _body(selection: Selection, view: View, width: int) -> list[Line]:
    lists = {
        Scope.NODES: _list(NODE_COLUMNS, selection.nodes, width)
        or _nothing("node has delivered in the last hour", view),
        Scope.GPUS: _list(GPU_COLUMNS, selection.gpus, width) or _nothing("GPU is there", view),
        Scope.RUNS: _list(RUN_COLUMNS, selection.runs, width) or _nothing("run was there in the last hour", view),
    }
    if view.scope is not Scope.ALL:
        return lists[view.scope]
    blank = Line(text=Text(), header=Text())
    return [line for each in lists.values() for line in (*each, blank)][:-1]


def _list(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> list[Line]:
    if not rows:
        return []
    layout = Layout(columns, rows, width)
    header = layout.header()
    header.stylize("bold underline")
    return [Line(text=header, header=header), *(Line(text=layout.line(row), header=header) for row in rows)]


def _nothing(what: str, view: View) -> list[Line]:
    text = Text(f"no {what}{' that matches the filter' if view.words else ''}", style="dim")
    return [Line(text=text, header=text)]


def _help() -> list[Line]:
    return [Line(text=Text(line), header=Text(line)) for line in _HELP.splitlines()]


def _title(snapshot: Snapshot, screen: Screen) -> Text:
    return _ends(
        Text(f"gpuagent · {harmless(screen.source)}"),
        Text(f"{snapshot.taken_at:%H:%M:%S} UTC"),
        screen.width,
        style="reverse",
    )


def _summary(snapshot: Snapshot) -> Text:
    return Text(" · ").join(Text(text, style=style or "") for text, style in summary(snapshot))


def _keys(view: View, screen: Screen, lines: int) -> Text:
    if screen.typed is not None:
        return Text(f"filter: {screen.typed}▏  Enter keeps it, Esc drops it")
    if screen.trouble:
        return Text(harmless(screen.trouble), style="red")
    last = min(view.offset + screen.page, lines)
    place = f"{view.offset + 1}–{last} of {lines}" if lines > screen.page else ""
    chosen = [f"{view.scope.value}"]
    chosen += [f"by {view.sort_by}{' reversed' if view.reverse else ''}"] if view.sort_by else []
    chosen += [f"filter: {view.words}"] if view.words else []
    keys = Text("q quit  ? keys  tab list  s sort  / filter", style="dim")
    return _ends(keys, Text("  ".join([", ".join(chosen), place]).rstrip()), screen.width)


def _ends(left: Text, right: Text, width: int, style: str = "") -> Text:
    """Return a line with a text at each of its ends; where there is no room for both, the left one is cut."""
    room = max(0, width - right.cell_len - 1)
    left.truncate(room, overflow="ellipsis", pad=True)
    line = Text.assemble(left, " ", right)
    line.stylize(style)
    return line
