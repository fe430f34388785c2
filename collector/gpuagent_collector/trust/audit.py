"""The audit record: one JSON object a line, in printable ASCII, on the logger `gpuagent.audit`."""

import errno
import io
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timezone
from logging.handlers import WatchedFileHandler
from typing import Any

from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError

_LOG = logging.getLogger("gpuagent.audit")

# Longer texts are cut; a cut statement is recorded with its length.
MAX_TEXT_CHARACTERS = 4000

# Of a list, such as the agents of a launch.
_MAX_ITEMS = 100

WINDOW_SECONDS = 60.0

# Per token, or for all callers without a token together: an attacker has any number of addresses.
MAX_IN_WINDOW = 20


class Refusals:
    """A counter of refusals by token name (None: no token), so that an attacker cannot fill the disk.

    Any thread may use it.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # Start of the window and refusals in it; no more windows than tokens.
        self._windows: dict[str | None, tuple[float, int]] = {}

    def count(self, who: str | None) -> bool:
        """Count one refusal; return whether it is among the first of its window, which are written."""
        with self._lock:
            start, refused = self._windows.get(who, (self._monotonic(), 0))
            self._windows[who] = (start, refused + 1)
            return refused < MAX_IN_WINDOW

    def take_unwritten(self, *, at_end: bool = False) -> Sequence[tuple[str | None, int]]:
        """Return the refusals not written in each finished window, or with `at_end` in all; restart these windows."""
        with self._lock:
            now = self._monotonic()
            over = [who for who, (start, _) in self._windows.items() if at_end or now - start >= WINDOW_SECONDS]
            counts = [(who, self._windows.pop(who)[1] - MAX_IN_WINDOW) for who in over]
        return [(who, count) for who, count in counts if count > 0]


_REFUSALS = Refusals()


def note(action: str, *, who: str | None, peer: str, **what: Any) -> None:
    """Write one line: an action, the name of the token (None: no token), the address, and details."""
    if _LOG.isEnabledFor(logging.INFO):
        _write(action, {"who": who, "peer": peer, **_without_absent(what)})


def refused(*, who: str | None, peer: str, **what: Any) -> None:
    """Write a refusal; only count it where this window has enough of them."""
    if _LOG.isEnabledFor(logging.INFO) and _REFUSALS.count(who):
        _write("refused", {"who": who, "peer": peer, **_without_absent(what)})


def sum_up(*, at_end: bool = False) -> None:
    """Write the number of refusals that were only counted in the finished windows, or with `at_end` in all."""
    for who, count in _REFUSALS.take_unwritten(at_end=at_end):
        _write("refused", {"who": who, "more": count, "within_seconds": WINDOW_SECONDS})


def _write(action: str, what: Mapping[str, Any]) -> None:
    now = utc_now().replace(tzinfo=timezone.utc).isoformat(timespec="milliseconds")
    values = {name: _truncate(value) for name, value in what.items()}
    line = json.dumps({"time": now, "action": action, **values}, ensure_ascii=True)
    _LOG.info("%s", line.replace("\x7f", "\\u007f"))  # the only control character that JSON does not escape


def shortened(text: str) -> dict[str, Any]:
    """Return a statement, cut if need be, as the fields of a record."""
    cut = {"characters": len(text)} if len(text) > MAX_TEXT_CHARACTERS else {}
    return {"sql": text[:MAX_TEXT_CHARACTERS], **cut}


def keep_in(place: str) -> None:
    """Write the record to a file that only its owner can read, or to stderr (`-`), independent of other logs.

    A file that logrotate moved away is created again. Raises GpuAgentError: the file cannot be written.
    """
    handler: logging.Handler
    if place == "-":
        handler = logging.StreamHandler()
    else:
        try:
            handler = _PrivateFile(place)
        except OSError as error:
            raise GpuAgentError(f"cannot write the audit log {place}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False


class _PrivateFile(WatchedFileHandler):
    """A file created for its owner alone, also after a rotation."""

    def _open(self) -> io.TextIOWrapper:
        # Without waiting: a pipe that nobody reads would hold up the collector for ever.
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
        # Another user could read and change the record in a file, or behind a link, that was left here for it.
        found = os.fstat(descriptor)
        owners = {os.lstat(self.baseFilename).st_uid, *([found.st_uid] if stat.S_ISREG(found.st_mode) else [])}
        if not owners <= {os.geteuid(), 0}:
            os.close(descriptor)
            raise PermissionError(errno.EPERM, "it belongs to another user; name a file in a folder of your own")
        return io.TextIOWrapper(io.FileIO(descriptor, "a"), encoding="ascii", write_through=True)


def _truncate(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT_CHARACTERS]
    return [_truncate(each) for each in value[:_MAX_ITEMS]] if isinstance(value, list) else value


def _without_absent(what: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in what.items() if value is not None}
