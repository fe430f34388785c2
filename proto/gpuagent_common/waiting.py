"""The line that says what a command waits for, so that no wait is silent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

# A longer wait says what it is for.
SILENT_SECONDS = 2.0


@contextmanager
def waiting_for(program: str, what: str, *, after_seconds: float = SILENT_SECONDS) -> Iterator[None]:
    """Print `PROGRAM: waiting for WHAT` to stderr if the body takes longer than 2 s."""
    notice = threading.Timer(after_seconds, click.echo, [f"{program}: waiting for {what}"], {"err": True})
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()
