"""The terminal while it is watched: single keys, a screen of its own, and everything as it was afterwards."""

import os
import select
import signal
import socket
import termios
import tty
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import FrameType, TracebackType

from rich.console import Console
from rich.control import Control
from rich.text import Text

from gpuagent_collector.watch.keys import KeyReader

# An Esc that nothing follows for so long is the key.
_ESCAPE_SECONDS = 0.05

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP)


class Terminal:
    """Reads keys and paints lines. As a context manager it takes the terminal, and gives it back however it is left.

    Signals are taken between two paintings, never inside one, so that no control sequence is cut in two.
    """

    def __init__(self, keyboard: int, console: Console) -> None:
        """Take the keyboard's file descriptor, and the console that writes to the same terminal."""
        self._keyboard = keyboard
        self._console = console
        self._keys = KeyReader()
        self._painted: list[str] = []
        self._woken, self._waker = socket.socketpair()

    def __enter__(self) -> "Terminal":
        self._attributes = termios.tcgetattr(self._keyboard)
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._handlers = [(number, signal.signal(number, _note)) for number in _SIGNALS]
        self._wakeup = signal.set_wakeup_fd(self._waker.fileno())
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers:
            signal.signal(number, handler)
        self._woken.close()
        self._waker.close()

    @property
    def size(self) -> os.terminal_size:
        """How large the terminal is, in cells."""
        return os.get_terminal_size(self._keyboard)

    def wake(self) -> None:
        """Make `wait` return; any thread may call this."""
        with suppress(OSError):  # so many have called that the pipe is full, or it is over
            self._waker.send(b"\0")

    def wait(self, seconds: float) -> list[str]:
        """Return the keys that were pressed; none when it was woken, the terminal was resized, or the time is over.

        Raises:
            KeyboardInterrupt: Ctrl-C.
            SystemExit: the process is to end.
        """
        timeout = _ESCAPE_SECONDS if self._keys.is_waiting else seconds
        ready, _, _ = select.select([self._keyboard, self._woken.fileno()], [], [], timeout)
        if self._woken.fileno() in ready:
            self._heed(self._woken.recv(4096))
        if self._keyboard in ready:
            return self._read()
        return [] if ready else self._keys.flush()

    def paint(self, lines: Sequence[Text]) -> None:
        """Write the lines that differ from those that are there."""
        width = self.size.columns
        self._console.width = width  # it would believe $COLUMNS, which stays as it was when the terminal is resized
        wanted = [self._as_sent(line, width) for line in lines]
        painted = self._painted + [""] * (len(wanted) - len(self._painted))
        changed = [
            f"{Control.move_to(0, row)}{new}"
            for row, (new, old) in enumerate(zip(wanted, painted, strict=False))
            if new != old
        ]
        self._painted = wanted
        self._write(changed)

    def _as_sent(self, line: Text, width: int) -> str:
        # Blanks to the end of the line, because erasing the rest would erase the last character of a full line.
        line = line.copy()
        line.truncate(width, overflow="ellipsis", pad=True)
        with self._console.capture() as captured:
            self._console.print(line, end="", no_wrap=True, crop=True, width=width)
        return captured.get()

    def _take(self) -> None:
        tty.setcbreak(self._keyboard)
        self._painted = []
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)
        self._write([str(Control.clear())])

    def _give_back(self) -> None:
        with suppress(OSError, termios.error):  # the terminal itself may have gone
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)
            termios.tcsetattr(self._keyboard, termios.TCSAFLUSH, self._attributes)

    def _read(self) -> list[str]:
        content = os.read(self._keyboard, 1024)
        if not content:
            raise SystemExit(0)  # the terminal was closed
        return self._keys.feed(content)

    def _heed(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            match number:
                case signal.SIGINT:
                    raise KeyboardInterrupt
                case signal.SIGTERM | signal.SIGHUP:
                    raise SystemExit(128 + number)
                case signal.SIGTSTP:
                    self._suspend()
                case signal.SIGWINCH:
                    self._painted = []

    def _suspend(self) -> None:
        """Stop as Ctrl-Z asks; go on when the shell says so."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _write(self, pieces: Sequence[str]) -> None:
        self._console.file.write("".join(pieces))
        self._console.file.flush()


def _note(_number: int, _frame: FrameType | None) -> None:
    """Let the signal's number be written to the wakeup socket, which happens where Python has a handler."""
