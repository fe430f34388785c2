"""A pseudo-terminal for a program under test: what is sent to it, and the state in which it is left."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.servers import BIN, LIMIT_SECONDS

_CONTROL = re.compile(rb"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|[@-_])")


class FakeTerminal:
    """The far end of a pseudo-terminal of 24 lines."""

    def __init__(self, columns: int = 120) -> None:
        self._master, self._slave = pty.openpty()
        self.sent = b""
        self._seen = 0
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.attributes = termios.tcgetattr(self._slave)

    def start(self, *command: str, environment: Mapping[str, str], folder: Path) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            ["setsid", "--ctty", str(BIN / command[0]), *command[1:]],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**environment, "TERM": "xterm-256color"},
            cwd=folder,
        )

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def shows(self, words: str) -> None:
        """Wait until the program writes these words after what was seen before."""
        deadline = time.monotonic() + LIMIT_SECONDS
        start = self._seen
        while words not in _CONTROL.sub(b"", self.sent[start:]).decode(errors="replace"):
            assert time.monotonic() < deadline, _CONTROL.sub(b"", self.sent[start:]).decode(errors="replace")
            self.read(0.1)
        self._seen = len(self.sent)

    def read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._master], [], [], seconds)
        content = os.read(self._master, 65536) if ready else b""
        self.sent += content
        return content

    def ended(self, process: "subprocess.Popen[Any]") -> int:
        """Wait until a program has ended, reading what it still sends, and return its exit code."""
        while process.poll() is None:
            self.read(0.05)
        while self.read(0.0):
            pass
        return int(process.returncode)

    def is_restored(self) -> bool:
        """Return whether keys are treated as before, the cursor shows, and the screen is the first one."""
        last = [self.sent.rfind(sequence) for sequence in (b"\x1b[?1049l", b"\x1b[?25h")]
        first = [self.sent.rfind(sequence) for sequence in (b"\x1b[?1049h", b"\x1b[?25l")]
        return last > first and termios.tcgetattr(self._slave) == self.attributes

    def close(self, process: "subprocess.Popen[Any]") -> None:
        """Let go of the terminal, and end a program that still runs."""
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(self._master)
        os.close(self._slave)
