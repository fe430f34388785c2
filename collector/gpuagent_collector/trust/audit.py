"""A record of who asked for what: one JSON object a line on the logger `gpuagent.audit`."""

import json
import logging
from collections.abc import Mapping
from datetime import timezone
from pathlib import Path
from typing import Any

from gpuagent_collector.errors import CollectorError
from gpuagent_collector.times import utc_now

_LOG = logging.getLogger("gpuagent.audit")

MAX_TEXT_CHARACTERS = 4000
"""Of a statement; a longer one is cut, and its length stands beside it."""


def note(action: str, *, who: str | None, peer: str, **what: Any) -> None:
    """Write one line: what was asked for, by the holder of which token (None: of none), from which address."""
    if _LOG.isEnabledFor(logging.INFO):
        time = utc_now().replace(tzinfo=timezone.utc).isoformat(timespec="milliseconds")
        line = {"time": time, "action": action, "who": who, "peer": peer, **_without_absent(what)}
        _LOG.info("%s", json.dumps(line, ensure_ascii=True))


def shortened(text: str) -> dict[str, Any]:
    """Return a statement for a line of the record."""
    cut = {"characters": len(text)} if len(text) > MAX_TEXT_CHARACTERS else {}
    return {"sql": text[:MAX_TEXT_CHARACTERS], **cut}


def keep_in(place: str) -> None:
    """Write the record to a file that only its owner may read, or to stderr (`-`), whatever else is logged.

    Raises:
        CollectorError: the file cannot be written.
    """
    handler: logging.Handler
    if place == "-":
        handler = logging.StreamHandler()
    else:
        try:
            Path(place).touch(mode=0o600)
            handler = logging.FileHandler(place)
        except OSError as error:
            raise CollectorError(f"cannot write the audit log {place}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False


def _without_absent(what: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in what.items() if value is not None}
