"""A terminal for a program under test: what it would show, what was sent to it, and how it is left."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.servers import BIN, LIMIT_SECONDS

_PIECE = re.compile(rb"\x1b\[(?P<row>\d+);(?P<column>\d+)H|\x1b\[[0-9;?]*[a-zA-Z]|(?P<text>[^\x1b]+)|\x1b")


class FakeTerminal:
    """The far end of a pseudo-terminal, which heeds where the cursor is sent and no other control sequence."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self._master, self._slave = pty.openpty()
        self.sent = b""
        self.resize(columns, rows)
        self.attributes = termios.tcgetattr(self._slave)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size; the kernel tells the program."""
        self.columns, self.rows = columns, rows
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def start(self, *command: str, environment: Mapping[str, str], folder: Path) -> "subprocess.Popen[bytes]":
        """Start one of our commands with this as its controlling terminal.

        As in some shells, $COLUMNS says how wide it was at first.
        """
        return subprocess.Popen(
            ["setsid", "--ctty", str(BIN / command[0]), *command[1:]],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**environment, "TERM": "xterm-256color", "COLUMNS": str(self.columns)},
            cwd=folder,
        )

    def press(self, keys: str) -> None:
        """Send what keys send."""
        os.write(self._master, keys.encode())

    def screen(self) -> list[str]:
        """Return what stands there."""
        lines = {row: bytearray() for row in range(self.rows)}
        row = 0
        for piece in _PIECE.finditer(self.sent):
            if piece["row"]:
                row = int(piece["row"]) - 1
                lines[row] = bytearray()
            elif piece["text"]:
                lines.setdefault(row, bytearray()).extend(piece["text"])
        return [bytes(lines[row]).decode(errors="replace").rstrip() for row in range(self.rows)]

    def shows(self, condition: Callable[[Sequence[str]], bool]) -> list[str]:
        """Wait until the screen meets a condition, and return it."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition(self.screen()):
            assert time.monotonic() < deadline, "\n".join(self.screen())
            self.read(0.1)
        return self.screen()

    def read(self, seconds: float) -> bytes:
        """Take what was sent, waiting for it at most so long, and return it."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        content = os.read(self._master, 65536) if ready else b""
        self.sent += content
        return content

    def ended(self, process: "subprocess.Popen[Any]") -> int:
        """Wait until a program has ended, taking what it still sends, and return its exit code."""
        while process.poll() is None:
            self.read(0.05)
        while self.read(0.0):
            pass
        return int(process.returncode)

    def attributes_now(self) -> list[Any]:
        """Return how the terminal treats keys."""
        return termios.tcgetattr(self._slave)

    def close(self, process: "subprocess.Popen[Any] | None" = None) -> None:
        """Let go of the terminal, and end a program that is still there."""
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        os.close(self._master)
        os.close(self._slave)
