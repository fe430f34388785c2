"""The options that say how long samples are kept, and as what."""

import re
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar

import click

from gpuagent_common.errors import MisuseError

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def retention_options(command: Command) -> Command:
    """Add --keep-raw, --keep-seconds and --keep; the command gets `retention: Retention`."""

    @wraps(command)
    def with_retention(
        *args: Any, keep_raw: str | None, keep_seconds: str | None, keep: str | None, **rest: Any
    ) -> object:
        from gpuagent_collector.store.retention import Retention

        retention = Retention(
            samples=_duration("--keep-raw", keep_raw),
            seconds=_duration("--keep-seconds", keep_seconds),
            everything=_duration("--keep", keep),
        )
        return command(*args, retention=retention, **rest)

    for name, words in reversed(_OPTIONS.items()):
        click.option(name, metavar="TIME", help=words)(with_retention)
    return with_retention  # type: ignore[return-value]


_OPTIONS = {
    "--keep-raw": "Thin samples out that are older than this, as 12h, 7d or 52w, to one row a second: mean, lowest, "
    "highest and number of readings.  [default: never]",
    "--keep-seconds": "Thin out to one row a minute what is older than this.  [default: never]",
    "--keep": "Remove samples in any form, and steps, that are older than this; runs keep their figures.  "
    "[default: never]",
}


def _duration(option: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if match is None or not int(match[1]):
        raise MisuseError(f"{option} takes a number above 0 and h, d or w, as 90d, not {text!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
