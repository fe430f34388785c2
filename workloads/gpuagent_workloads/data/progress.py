"""Tells on stderr what goes on: a bar on a terminal, elsewhere a line when something begins."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

# Of a bar, at most: an archive may hold 100,000 files.
_REDRAWS = 500


def tell(text: str) -> None:
    """Print a line."""
    click.echo(text, err=True)


def megabytes(size_bytes: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{size_bytes / 1e6:,.1f} MB"


@contextmanager
def progress(label: str, length: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with how much more is done, of `length`; `done` already is."""
    tell(label)
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    with click.progressbar(length=length, file=sys.stderr, update_min_steps=max(1, length // _REDRAWS)) as bar:
        bar.update(done)
        yield bar.update
