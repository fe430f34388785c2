"""`collector import`: merge an export, a spool that was carried here, or a tracker's log."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gpuagent_collector.cli.options import changed_store_option
from gpuagent_collector.cli.printing import print_rows_of
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted

_EXAMPLES = """\b
Examples:
  collector import satori-july
  collector import satori-july --store both.duckdb
  collector import /media/stick/spool.sqlite
  collector import history.csv --run train-7f0a77487a
"""


@click.command(epilog=_EXAMPLES)
@click.argument("source", metavar="DIR|SPOOL|LOG", type=click.Path(path_type=Path, exists=True))
@changed_store_option
@click.option("--run", "run_id", metavar="RUN", help="Take SOURCE as the log of this run's steps.")
@click.option(
    "--items-per-step",
    metavar="N",
    type=click.FloatRange(0, 1e15, min_open=True),
    help="With --run: samples or tokens of a step.",
)
def command(source: Path, store_name: str, run_id: str | None, items_per_step: float | None) -> None:
    """Merge an export, a spool or a tracker's log into a store.

    The store is made if it does not exist. Rows that it already has are skipped, so exports can be imported twice, or
    overlap, in any order. The folder of a `collector export` is checked first, then merged whole or not at all.

    An agent's spool (spool.sqlite, or its folder) comes from a node without a connection to a collector. Its messages
    are stored exactly once, even if the agent delivers them later.

    With --run, steps and metrics come from a log: the history of Weights & Biases or another table with a column of
    steps, as CSV or JSON lines; a run's folder of MLflow; event files of TensorBoard, for which it must be installed.
    """
    if items_per_step is not None and run_id is None:
        raise MisuseError("--items-per-step is for the log of a run; name the run with --run")
    with ended_by_ctrl_c():
        if run_id is not None:
            _import_log(source, store_name, run_id, items_per_step)
            return
        _importer(source)(source, store_name)


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once.

    A KeyboardInterrupt might not: DuckDB imports Python modules on its own, and ignores any error of that.
    Uncommitted rows are not stored; the import can be repeated.
    """
    before = signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _importer(source: Path) -> Callable[[Path, str], None]:
    from gpuagent_collector.exchange.manifest import MANIFEST
    from gpuagent_collector.exchange.spool import SPOOL_FILE, is_spool

    if source.is_dir() and (source / MANIFEST).is_file():
        return _import_export
    if source.is_dir() and (source / SPOOL_FILE).is_file():
        return lambda folder, store_name: _import_spool(folder / SPOOL_FILE, store_name)
    if source.is_file() and is_spool(source):
        return _import_spool
    raise MisuseError(
        f"{source} is neither a folder of `collector export` (no {MANIFEST}) nor an agent's spool; for a log add --run"
    )


def _import_log(source: Path, store_name: str, run_id: str, items_per_step: float | None) -> None:
    from gpuagent_collector.exchange.logs import import_log
    from gpuagent_collector.store import Store

    with Store.open(store_name) as store:
        click.echo(f"{store.spec}: {import_log(source, run_id, store, items_per_step)}")


def _import_export(folder: Path, store_name: str) -> None:
    from gpuagent_collector.exchange.manifest import CheckedExport
    from gpuagent_collector.exchange.merge import merge
    from gpuagent_collector.store import Store

    checked = CheckedExport.open(folder)
    with Store.open(store_name, exact=True) as store:
        merged = merge(checked, store)
    for each in merged:
        print_rows_of(each.table, each.added)
    added, known = sum(each.added for each in merged), sum(each.known for each in merged)
    click.echo(f"{store.spec}: {counted(added, 'row')} added, {known:,} were there already")


def _import_spool(file: Path, store_name: str) -> None:
    from gpuagent_collector.exchange.spool import import_spool
    from gpuagent_collector.ingest.messages import Verdict
    from gpuagent_collector.store import Store

    with Store.open(store_name) as store:
        counts = import_spool(file, store)
    words = f"{counted(counts[Verdict.COMMITTED], 'message')} stored, {counts[Verdict.DUPLICATE]:,} were there already"
    if rejected := counts[Verdict.REJECTED]:
        words += f", {rejected:,} rejected: see the table gaps"
    click.echo(f"{store.spec}: {words}")
