"""The live view of `collector watch`, by textual: three lists, a filter, and a line of keys."""

import asyncio
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable, Input, Static

from gpuagent_collector.watch.columns import cell, fitting
from gpuagent_collector.watch.snapshot import Snapshot
from gpuagent_collector.watch.view import Scope, View, select, summary_line, without_gone
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless

# A snapshot that is later than its time by this much is reported.
_PATIENCE_SECONDS = 5.0

# Snapshots in a GPU's sparkline.
_TREND_LENGTH = 12
# The full block would touch the line above.
_BARS = "▁▂▃▄▅▆▇"

_HELP = """\
tab           next list: all, nodes, GPUs, runs
1 2 3 4       all, nodes, GPUs, runs
s S           sort by the next column, by the previous one
r             reverse the order
/             filter by words; Enter keeps the filter, Esc drops it
↑ ↓ j k       a line up or down
PgUp PgDn     a page up or down; space also goes down
Home End      to the beginning, to the end
? h           show or hide these keys
q Ctrl-C      quit

GPU is the share of time in which any kernel ran; SM is the share of multiprocessors that were busy,
where the GPU reports it. A node without a sample in the last 30 s is gone if its agent stopped in good
order, and is silent otherwise. Nodes without data for an hour, and runs that ended before that, are hidden.
"""


class Taken(Message):
    """A snapshot that was taken, or the reason why it could not be."""

    def __init__(self, snapshot: Snapshot | None, trouble: str | None) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.trouble = trouble


class Watch(App[None]):
    """A screen that answers keys at once: a thread takes the snapshots, so that a slow collector cannot block it."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #title { text-style: reverse; }
    #title, #summary, #keys { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #body { height: 1fr; scrollbar-size-vertical: 1; }
    #help { display: none; }
    DataTable { max-height: 1000000; margin-bottom: 1; background: ansi_default; overflow-x: hidden; }
    DataTable { scrollbar-size-vertical: 1; }
    DataTable > .datatable--header { background: ansi_default; text-style: bold underline; }
    DataTable.alone { max-height: 100%; margin-bottom: 0; }
    Input { display: none; height: 1; border: none; padding: 0; background: ansi_default; }
    """
    BINDINGS = [  # noqa: RUF012 - textual declares it so
        Binding("q", "quit"),
        Binding("ctrl+c", "interrupt", priority=True),
        Binding("question_mark,h", "help"),
        Binding("escape", "escape"),
        # With priority, so that the keys that follow at once are words already, not commands.
        Binding("slash", "filter", priority=True),
        Binding("tab", "scope(1)", priority=True),
        Binding("shift+tab", "scope(-1)", priority=True),
        *(Binding(str(number), f"only('{scope.name}')") for number, scope in enumerate(Scope, start=1)),
        Binding("s", "sort(1)"),
        Binding("S", "sort(-1)"),
        Binding("r", "reverse"),
        Binding("up,k", "scroll('up')"),
        Binding("down,j", "scroll('down')"),
        Binding("pageup", "scroll('page_up')"),
        Binding("pagedown,space", "scroll('page_down')"),
        Binding("home", "scroll('home')"),
        Binding("end", "scroll('end')"),
    ]

    def __init__(self, take: Callable[[], Snapshot], first: Snapshot, *, source: str, interval_seconds: float) -> None:
        """Begin with the first snapshot; `take` is called in a thread, every `interval_seconds`."""
        super().__init__(ansi_color=True)
        self._take = take
        self._snapshot = first
        self._source = harmless(source)
        self._interval_seconds = interval_seconds
        self._view = View()
        self._trouble: str | None = None
        self._answered_seconds = time.monotonic()
        self._loads: dict[int, deque[float | None]] = defaultdict(lambda: deque(maxlen=_TREND_LENGTH))
        self._headers: dict[Scope, list[tuple[Text, int]]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._take_snapshots, name="snapshots", daemon=True)

    def compose(self) -> ComposeResult:
        """Yield the lines of the screen from top to bottom."""
        yield Static(id="title")
        yield Static(id="summary")
        with VerticalScroll(id="body", can_focus=False):
            yield Static(_HELP, id="help", markup=False)
            for scope in (Scope.NODES, Scope.GPUS, Scope.RUNS):
                table: DataTable[Text] = DataTable(id=scope.value, cursor_type="none", zebra_stripes=False)
                table.can_focus = False
                yield table
        yield Input(placeholder="words; Enter keeps the filter, Esc drops it")
        yield Static(id="keys")

    def on_mount(self) -> None:
        """Start the thread, and end in good order on a signal, so that the terminal is restored."""
        self._remember_loads()
        self._thread.start()
        self.query_one("#keys").set_interval(1.0, self._show_keys)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.exit, None, 128 + number)

    def on_unmount(self) -> None:
        """Stop the thread. It may hang in a question to a collector that does not answer; then it is left behind."""
        self._stopped.set()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _take_snapshots(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                self.post_message(Taken(self._take(), None))
            except GpuAgentError as error:
                self.post_message(Taken(None, f"trying again: {error}"))

    def on_taken(self, taken: Taken) -> None:
        """Show a new snapshot, or why the old one stays."""
        if not self.query("#title"):
            return  # on exit the widgets go first
        self._answered_seconds, self._trouble = time.monotonic(), taken.trouble
        if taken.snapshot is not None:
            self._snapshot = taken.snapshot
            self._remember_loads()
        self._show()

    def _remember_loads(self) -> None:
        for node in self._snapshot.nodes:
            for gpu in node.gpus:
                self._loads[gpu.device_id].append(gpu.figures["utilization_percent"])

    def on_resize(self) -> None:
        """Choose the columns that fit the new width."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        snapshot, view = self._snapshot, self._view
        title = Text(f"gpuagent · {self._source}")
        clock = f"{snapshot.taken_at:%H:%M:%S} UTC"
        title.truncate(max(0, self.size.width - len(clock) - 1), overflow="ellipsis", pad=True)
        self.query_one("#title", Static).update(Text.assemble(title, " ", clock))
        self.query_one("#summary", Static).update(summary_line(snapshot))
        trends = {device_id: trend(loads) for device_id, loads in self._loads.items()}
        listings = select(snapshot, view, trends)
        for scope, listing in listings.items():
            table = self.query_one(f"#{scope.value}", DataTable)
            table.display = self._view.scope in (Scope.ALL, scope) and not self.query_one("#help").display
            alone = self._view.scope is scope
            is_beside = scope is Scope.NODES and not alone
            rows = without_gone(listings, self.size.height) if is_beside else listing.rows
            # textual measures a table later than it lays it out, and sometimes leaves it without any height.
            table.styles.height = "1fr" if alone else len(rows) + 1
            table.set_class(alone, "alone")
            chosen = fitting(listing.columns, rows, self.size.width - 3) if rows else []
            headers = [(Text(column.title, justify=column.alignment), width) for column, width in chosen]
            if not rows:
                headers = [(Text(f"no {listing.row_name}", style="not bold not underline"), self.size.width)]
            if self._headers.get(scope) != headers:
                self._headers[scope] = headers
                table.clear(columns=True)
                for header, width in headers:
                    table.add_column(header, width=width)
            for index, row in enumerate(rows):
                cells = [cell(column, row, width) for column, width in chosen]
                if index == table.row_count:
                    table.add_row(*cells)
                    continue
                for place, text in enumerate(cells):
                    at = Coordinate(index, place)
                    if table.get_cell_at(at) != text:
                        table.update_cell_at(at, text)
            while table.row_count > len(rows):
                table.remove_row(list(table.rows)[-1])
        self._show_keys()

    def _show_keys(self) -> None:
        late_seconds = time.monotonic() - self._answered_seconds
        trouble = self._trouble
        if late_seconds > self._interval_seconds + _PATIENCE_SECONDS:
            trouble = f"no answer since {self._snapshot.taken_at:%H:%M:%S} UTC"
        if trouble:
            line = Text(harmless(trouble), style="red")
        else:
            view = self._view
            chosen = [view.scope.value]
            chosen += [f"by {view.sort_by}{' reversed' if view.reverse else ''}"] if view.sort_by else []
            chosen += [f"filter: {view.words}"] if view.words else []
            right = Text(", ".join(chosen))
            line = Text("q quit  ? keys  tab list  s sort  / filter", style="dim")
            line.truncate(max(0, self.size.width - right.cell_len - 1), overflow="ellipsis", pad=True)
            line = Text.assemble(line, " ", right)
        self.query_one("#keys", Static).update(line)

    def _look(self, view: View) -> None:
        if view.scope is not self._view.scope or view.words != self._view.words:
            self.query_one("#body").scroll_home(animate=False)
        self._view = view
        self._show()

    def action_interrupt(self) -> None:
        """Leave as a program does that was interrupted."""
        self.exit(return_code=128 + signal.SIGINT)

    def action_help(self) -> None:
        """Show the keys in place of the lists, or the lists again."""
        help_text = self.query_one("#help")
        help_text.display = not help_text.display
        self._look(self._view)

    def action_filter(self) -> None:
        """Open the line in which the filter is typed."""
        field = self.query_one(Input)
        if self.focused is field:
            field.insert_text_at_cursor("/")
            return
        field.display, field.value = True, self._view.words
        self.set_focus(field)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the words are typed."""
        self._look(replace(self._view, words=event.value))

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self._close_filter()

    def _close_filter(self) -> None:
        self.set_focus(None)
        self.query_one(Input).display = False

    def action_escape(self) -> None:
        """Close the help, or drop the filter."""
        if self.query_one("#help").display:
            self.action_help()
        else:
            self._close_filter()
            self._look(replace(self._view, words=""))

    def action_scope(self, step: int) -> None:
        """Show the next list, or the previous one."""
        self._look(self._view.next_scope(step))

    def action_only(self, name: str) -> None:
        """Show the list of this name."""
        self._look(self._view.in_scope(Scope[name]))

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or by the previous one."""
        self._look(self._view.sorted_by_next(step))

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._look(replace(self._view, reverse=not self._view.reverse))

    def action_scroll(self, where: str) -> None:
        """Scroll the list, or all lists where all are shown."""
        alone = self._view.scope is not Scope.ALL
        target = self.query_one(f"#{self._view.scope.value}" if alone else "#body")
        getattr(target, f"scroll_{where}")(animate=False)


def trend(loads: Sequence[float | None]) -> str:
    """Return percentages as bars on a scale from 0 to 100; a blank where there is no reading.

    textual's own sparkline scales to the highest value: a GPU at a steady 3 % would look like one at 98 %.
    """
    bars = (" " if load is None else _BARS[min(6, int(max(0.0, load) / 100 * 7))] for load in loads)
    return "".join(bars).rjust(_TREND_LENGTH)


def watch(take: Callable[[], Snapshot], first: Snapshot, *, source: str, interval_seconds: float) -> None:
    """Show snapshots on the terminal until the user quits.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        SystemExit: SIGTERM or SIGHUP.
    """
    # Without mouse reports the terminal's own selection works.
    app = Watch(take, first, source=source, interval_seconds=interval_seconds)
    app.run(mouse=False)
    if app.return_code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if app.return_code:
        raise SystemExit(app.return_code)
