"""`collector compact`: keeps a store small and quick."""

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.writing import changed_store_option
from gpuagent_collector.errors import MisuseError
from gpuagent_collector.output.human import counted, notation

if TYPE_CHECKING:
    from gpuagent_collector.store import Store

_EXAMPLES = """\b
Examples:
  collector compact --store 'ducklake:postgres:host=db1 dbname=lake'
  collector compact --store 'ducklake:postgres:host=db1 dbname=lake' --keep 90d
  collector compact --keep 52w
"""

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@click.command(epilog=_EXAMPLES)
@click.option(
    "--keep",
    metavar="TIME",
    help="Remove samples and steps older than this, as 12h, 90d or 52w; runs keep their figures.  [default: keep all]",
)
@changed_store_option
def command(keep: str | None, store_name: str) -> None:
    """Fold together what many small commits left behind, and remove what is old.

    A store in PostgreSQL is compacted while collectors write it; run this there every hour, once at a time. What nobody
    reads any more is deleted a day later.
    """
    from gpuagent_collector.exchange.transaction import open_existing
    from gpuagent_collector.times import utc_now

    kept = None if keep is None else _duration(keep)
    with open_existing(store_name) as store:
        if kept is not None:
            _remove(store, utc_now() - kept, keep or "")
        store.tidy()
        _announce(store)


def _remove(store: "Store", before: "datetime", keep: str) -> None:
    rows = store.remove_samples(before)
    click.echo(f"{store.spec}: {counted(rows, 'row')} older than {keep} removed")


def _announce(store: "Store") -> None:
    files = store.files()
    if files is None:
        click.echo(f"{store.spec}: compacted")
        return
    size = notation([files.size_bytes], "bytes").write(files.size_bytes)
    click.echo(f"{store.spec}: compacted, in {counted(files.count, 'file')} of {size}")


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if match is None or not int(match[1]):
        raise MisuseError(f"--keep takes a number and h, d or w, as 90d, not {text!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
