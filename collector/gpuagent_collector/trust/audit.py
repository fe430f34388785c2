"""A record of who asked for what: one JSON object a line, of printable ASCII, on the logger `gpuagent.audit`."""

import io
import json
import logging
import os
from collections.abc import Mapping
from datetime import timezone
from logging.handlers import WatchedFileHandler
from typing import Any

from gpuagent_collector.times import utc_now
from gpuagent_collector.trust.refusals import WINDOW_SECONDS, Refusals
from gpuagent_common.errors import GpuAgentError

_LOG = logging.getLogger("gpuagent.audit")

# Of a statement; a longer one is cut, and its length stands beside it. Other texts are cut as well.
MAX_TEXT_CHARACTERS = 4000

# Of a list, as of the agents that something was launched on.
_MAX_ITEMS = 100

_REFUSALS = Refusals()


def note(action: str, *, who: str | None, peer: str, **what: Any) -> None:
    """Write one line: what was asked for, by the holder of which token (None: of none), from which address."""
    if _LOG.isEnabledFor(logging.INFO):
        _write(action, {"who": who, "peer": peer, **_without_absent(what)})


def refused(*, who: str | None, peer: str, **what: Any) -> None:
    """Write that somebody was refused, unless that is written often enough; then it is counted."""
    if _LOG.isEnabledFor(logging.INFO) and _REFUSALS.is_to_be_written(who):
        _write("refused", {"who": who, "peer": peer, **_without_absent(what)})


def sum_up(*, at_end: bool = False) -> None:
    """Write how many refusals were only counted in the minutes that are over, or `at_end` up to now."""
    for who, count in _REFUSALS.left_out(at_end=at_end):
        _write("refused", {"who": who, "more": count, "within_seconds": WINDOW_SECONDS})


def _write(action: str, what: Mapping[str, Any]) -> None:
    time = utc_now().replace(tzinfo=timezone.utc).isoformat(timespec="milliseconds")
    values = {name: _bounded(value) for name, value in what.items()}
    line = json.dumps({"time": time, "action": action, **values}, ensure_ascii=True)
    _LOG.info("%s", line.replace("\x7f", "\\u007f"))  # the one control character that JSON lets stand


def shortened(text: str) -> dict[str, Any]:
    """Return a statement for a line of the record."""
    cut = {"characters": len(text)} if len(text) > MAX_TEXT_CHARACTERS else {}
    return {"sql": text[:MAX_TEXT_CHARACTERS], **cut}


def keep_in(place: str) -> None:
    """Write the record to a file that only its owner may read, or to stderr (`-`), whatever else is logged.

    A file that was moved away, as logrotate does, is made anew.

    Raises:
        GpuAgentError: the file cannot be written.
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
    """A file that is made for its owner alone, also when it has to be made again."""

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return io.TextIOWrapper(io.FileIO(descriptor, "a"), encoding="ascii", write_through=True)


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT_CHARACTERS]
    return [_bounded(each) for each in value[:_MAX_ITEMS]] if isinstance(value, list) else value


def _without_absent(what: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in what.items() if value is not None}
