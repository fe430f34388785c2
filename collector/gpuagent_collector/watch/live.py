"""The live view: takes snapshots in the background, and answers keys at once."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

from rich.console import Console

from gpuagent_collector.watch.frame import Screen, compose
from gpuagent_collector.watch.keys import ESCAPE
from gpuagent_collector.watch.snapshot import Snapshot
from gpuagent_collector.watch.terminal import Terminal
from gpuagent_collector.watch.view import Scope, View
from gpuagent_common.errors import GpuAgentError

# When no snapshot has come for so long beyond its time, that is said.
_PATIENCE_SECONDS = 5.0


class Refresher:
    """Takes a snapshot again and again, in a thread of its own."""

    def __init__(
        self, take: Callable[[], Snapshot], first: Snapshot, interval_seconds: float, wake: Callable[[], None]
    ) -> None:
        """Begin with the snapshot that is there; `wake` is called after each that was taken, or could not be."""
        self.latest = first
        self._error: str | None = None
        self._answered_seconds = time.monotonic()
        self._take = take
        self._interval_seconds = interval_seconds
        self._wake = wake
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def __enter__(self) -> "Refresher":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join(_PATIENCE_SECONDS)

    @property
    def trouble(self) -> str | None:
        """Why the latest snapshot is not new; None: it is."""
        if time.monotonic() - self._answered_seconds > self._interval_seconds + _PATIENCE_SECONDS:
            return f"no answer since {self.latest.taken_at:%H:%M:%S} UTC"
        return self._error

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                self.latest, self._error = self._take(), None
            except GpuAgentError as error:
                self._error = f"{error}; trying again"
            self._answered_seconds = time.monotonic()
            self._wake()


@dataclass(slots=True, kw_only=True)
class Dialogue:
    """What the user has typed so far comes to."""

    view: View
    # Words of a filter that is being typed; None: none is.
    typed: str | None = None
    helping: bool = False
    over: bool = False

    def press(self, key: str, page: int) -> None:
        """Heed a key; `page` is how many lines the lists have."""
        if self.typed is not None:
            self._type(key)
        elif key == "q":
            self.over = True
        elif key in ("?", "h") or (key == ESCAPE and self.helping):
            self.helping, self.view = not self.helping, replace(self.view, offset=0)
        elif key == "/":
            self.typed = self.view.words
        else:
            self.view = _MOVES.get(key, _stay)(self.view, page)

    def _type(self, key: str) -> None:
        typed = self.typed or ""
        match key:
            case "enter":
                self.typed = None
            case _ if key == ESCAPE:
                self.typed, typed = None, ""
            case "backspace":
                self.typed = typed = typed[:-1]
            case "space":
                self.typed = typed = f"{typed} "
            case _ if len(key) == 1:
                self.typed = typed = typed + key
        self.view = replace(self.view, words=typed, offset=0)


def _stay(view: View, _page: int) -> View:
    return view


def _scroll(lines: int = 0, pages: int = 0) -> Callable[[View, int], View]:
    # The header stands on the page's first line, so that a page less one line is new.
    return lambda view, page: replace(view, offset=max(0, view.offset + lines + pages * max(1, page - 1)))


# Key → what it does to the view.
_MOVES: dict[str, Callable[[View, int], View]] = {
    "up": _scroll(lines=-1),
    "k": _scroll(lines=-1),
    "down": _scroll(lines=1),
    "j": _scroll(lines=1),
    "page up": _scroll(pages=-1),
    "page down": _scroll(pages=1),
    "space": _scroll(pages=1),
    "home": lambda view, _: replace(view, offset=0),
    "end": lambda view, _: replace(view, offset=10**9),
    "tab": lambda view, _: view.shown_next(),
    "back tab": lambda view, _: view.shown_next(-1),
    ESCAPE: lambda view, _: replace(view, words="", offset=0),
    "1": lambda view, _: view.in_scope(Scope.ALL),
    "2": lambda view, _: view.in_scope(Scope.NODES),
    "3": lambda view, _: view.in_scope(Scope.GPUS),
    "4": lambda view, _: view.in_scope(Scope.RUNS),
    "s": lambda view, _: view.sorted_by_next(),
    "S": lambda view, _: view.sorted_by_next(-1),
    "r": lambda view, _: replace(view, reverse=not view.reverse),
}


def watch(
    take: Callable[[], Snapshot],
    first: Snapshot,
    *,
    source: str,
    interval_seconds: float,
    keyboard: int,
    console: Console,
) -> None:
    """Show snapshots on the console's terminal, whose keys come from the file descriptor `keyboard`.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        SystemExit: the process is to end.
    """
    dialogue = Dialogue(view=View())
    with (
        Terminal(keyboard, console) as terminal,
        Refresher(take, first, interval_seconds, terminal.wake) as refresher,
    ):
        while not dialogue.over:
            columns, rows = terminal.size
            screen = Screen(
                width=columns,
                height=rows,
                source=source,
                trouble=refresher.trouble,
                typed=dialogue.typed,
                helping=dialogue.helping,
            )
            lines, dialogue.view = compose(refresher.latest, dialogue.view, screen)
            terminal.paint(lines)
            for key in terminal.wait(interval_seconds + _PATIENCE_SECONDS):
                dialogue.press(key, screen.page)
