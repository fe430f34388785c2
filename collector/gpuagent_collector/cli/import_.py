"""`collector import`: merge an export, another store, a spool, a tracker's log, or results of other programs."""

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent_collector.cli.options import changed_store_option
from gpuagent_common.cli import NAME, Number, parse_labels, parse_pairs
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted, harmless

if TYPE_CHECKING:
    from gpuagent_collector.exchange.foreign.store import Place
    from gpuagent_collector.exchange.merge import Merged
    from gpuagent_collector.store import Store

_EXAMPLES = """\b
Examples:
  collector import satori-july
  collector import satori-july --store both.duckdb
  collector import node-7.duckdb --store both.duckdb
  collector import /media/stick/spool.sqlite
  collector import history.csv --run train-7f0a77487a
  collector import profile_export_aiperf.json --platform satori --gpu "8 x NVIDIA H200"
"""


@click.command(epilog=_EXAMPLES)
@click.argument("source", metavar="DIR|STORE|SPOOL|LOG|RESULT", type=click.Path(path_type=Path, exists=True))
@changed_store_option
@click.option("--run", "run_id", metavar="RUN", help="Take SOURCE as the log of this run's steps.")
@click.option(
    "--items-per-step",
    metavar="N",
    type=Number(0, 1e15, min_open=True),
    help="With --run: samples or tokens of a step.",
)
@click.option("--log-run", metavar="NAME", help="With --run: the run in a table or chart of several.")
@click.option("--platform", type=NAME, metavar="NAME", help="Of a result: where it was measured.")
@click.option("--node", type=NAME, metavar="NAME", help="Of a result: the node.")
@click.option("--gpu", metavar="[N x ]NAME", multiple=True, help="Of a result: the GPUs, such as '8 x NVIDIA H200'.")
@click.option("--instance-type", metavar="NAME", help="Of a result: the cloud's machine type, for prices.")
@click.option("--name", type=NAME, metavar="NAME", help="Of a result: the workload's name in comparisons.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="Of a result: a label of its runs.")
@click.option(
    "--param", "parameters", metavar="KEY=VALUE", multiple=True, help="Of a result: a parameter that it does not state."
)
def command(
    source: Path, store_name: str, run_id: str | None, items_per_step: float | None, log_run: str | None, **place: Any
) -> None:
    """Merge an export, another store, a spool, a log or a result.

    The store is made if it does not exist. Rows that it already has are skipped, so exports can be imported twice, or
    overlap, in any order. The folder of a `collector export` is checked first, then merged whole or not at all.

    Another store is a DuckDB file that no collector has open, or a folder of such files. Each file is merged whole or
    not at all. It is only read, and may have an older schema.

    An agent's spool (spool.sqlite, or its folder) comes from a node without a connection to a collector. Its messages
    are stored exactly once, even if the agent delivers them later.

    With --run, steps and metrics come from a log: the history of Weights & Biases or another table with a column of
    steps, as CSV or JSON lines; a run's folder or the database of MLflow; a project's database of Trackio; event files
    of TensorBoard, for which it must be installed; the metrics in what a program printed. The last loss is the run's.
    Of several runs, --log-run names the one to take.

    Results of aiperf, guidellm, `vllm bench serve` and nccl-tests become runs. What a file does not state is absent,
    and conditions that it should state are asked for. A file's own node and GPUs count unless options name others.
    """
    for option, value in (("--items-per-step", items_per_step), ("--log-run", log_run)):
        if value is not None and run_id is None:
            raise MisuseError(f"{option} is for the log of a run; name the run with --run")
    with ended_by_ctrl_c():
        importer = None if run_id is not None else _importer(source)
        is_result = run_id is None and importer is None
        if not is_result and any(place.values()):
            raise MisuseError(f"{source} is not taken as a result of another program: only --store fits it, or --run")
        if importer is not None:
            importer(source, store_name)
            return
        from gpuagent_collector.exchange.foreign.store import import_results, read_file
        from gpuagent_collector.exchange.logs import import_log
        from gpuagent_collector.store import Store

        if run_id is not None:
            with Store.open(store_name) as store:
                click.echo(f"{store.spec}: {import_log(source, run_id, store, items_per_step, log_run)}")
            _print_next(store_name, "show", run_id)
            return
        named = _place(place)
        runs, content = read_file(source, named)
        with Store.open(store_name) as store, _new_runs_printed(store, store_name):
            click.echo(f"{store.spec}: {import_results(source, runs, content, named, store)}")


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once.

    A KeyboardInterrupt might not: DuckDB imports Python modules on its own, and ignores any error of that.
    Uncommitted rows are not stored; the import can be repeated.
    """

    def end(_number: int, _frame: object) -> None:
        with suppress(OSError):
            os.write(2, b"\ncollector: interrupted; the same import can be repeated\n")
        os._exit(130)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _importer(source: Path) -> Callable[[Path, str], None] | None:
    """Return the importer of an export, a store or a spool; None: it can only be a result of another program."""
    from gpuagent_collector.exchange.export import MANIFEST
    from gpuagent_collector.exchange.spool import SPOOL_FILE, is_spool
    from gpuagent_collector.store.spec import find_stores

    if source.is_dir() and (source / MANIFEST).is_file():
        return _import_export
    if source.is_dir() and (source / SPOOL_FILE).is_file():
        return lambda folder, store_name: _import_spool(folder / SPOOL_FILE, store_name)
    try:
        if stores := find_stores(source):
            return lambda _source, store_name: _import_stores(stores, store_name)
        if source.is_file():
            return _import_spool if is_spool(source) else None
    except OSError as error:
        raise GpuAgentError(f"cannot read {source}: {error.strerror}") from error
    if source.is_dir():
        raise MisuseError(
            f"{source} is no folder of `collector export` (no {MANIFEST}), stores or a spool; for a log add --run, and "
            "of a result name its file"
        )
    return None


def _place(given: Mapping[str, Any]) -> "Place":
    from gpuagent_collector.exchange.foreign.store import Place

    gpus: list[str] = []
    for text in given["gpu"]:
        matched = _GPUS.fullmatch(text)
        if matched is None and _COUNTED.match(text):
            raise MisuseError(f"--gpu {text!r:.80} is not N x NAME with N from 1 to 999, such as '8 x NVIDIA H200'")
        gpus += [matched[2].strip()] * int(matched[1]) if matched else [text]
    return Place(
        platform=given["platform"],
        node=given["node"],
        gpus=tuple(gpus),
        instance_type=given["instance_type"],
        workload=given["name"],
        labels=parse_labels(given["labels"]),
        parameters=parse_pairs(given["parameters"], "--param"),
    )


# At most 999 of a kind.
_GPUS = re.compile(r"([1-9][0-9]{0,2}) x (\S.*)")
_COUNTED = re.compile(r"\s*[0-9]+ x( |$)")


def _import_export(folder: Path, store_name: str) -> None:
    from gpuagent_collector.exchange.export import CheckedExport
    from gpuagent_collector.exchange.merge import merge
    from gpuagent_collector.store import Store

    checked = CheckedExport.open(folder)
    with Store.open(store_name, exact=True) as store, _new_runs_printed(store, store_name):
        _print_merged(store, merge(checked, store), "")


def _import_stores(files: Sequence[Path], store_name: str) -> None:
    from gpuagent_collector.exchange.merge import OtherStore, merge
    from gpuagent_collector.store import Kind, Store, StoreSpec

    target = StoreSpec.parse(store_name)
    own = target.path if target.kind is not Kind.SHARED and target.path.exists() else None
    others = [file for file in files if own is None or not own.samefile(file)]
    if not others:
        raise MisuseError(f"{files[0]} is the store itself; name another with --store")
    # No row is stored before every file has been opened.
    for file in others:
        with OtherStore.open(file):
            pass
    with Store.open(target, exact=True) as store, _new_runs_printed(store, store_name):
        for file in others:
            with OtherStore.open(file) as other:
                merged = merge(other, store)
            _print_merged(store, merged, f" from {file.name}")


@contextmanager
def _new_runs_printed(store: "Store", store_name: str) -> Iterator[None]:
    """Print the runs that the store has gained on exit, and the command that shows them."""
    with closing(store.connect()) as connection:
        known = [run_id for (run_id,) in connection.execute("SELECT run_id FROM runs").fetchall()]
    yield
    with closing(store.connect()) as connection:
        gained = connection.execute(_GAINED, [known]).fetchall()
        compared = connection.execute(_COMPARED, [[workload for workload, *_ in gained]]).fetchone()
    parts = []
    for workload, platform, number in gained[:_MOST_NAMED]:
        parts.append(f"{number:,} of {workload}{f' on {platform}' if platform else ''}")
    if gained[_MOST_NAMED:]:
        parts.append(f"{sum(number for *_, number in gained[_MOST_NAMED:]):,} others")
    new = counted(sum(number for *_, number in gained), "new run") if gained else "no new runs"
    click.echo(harmless(f"{new}: {', '.join(parts)}" if parts else new))
    if compared:
        _print_next(store_name, "compare", "--workload", compared[0])
    else:
        _print_next(store_name, "runs")


_MOST_NAMED = 5

# The workload with the most new runs that succeeded on several platforms.
_COMPARED = """
SELECT workload FROM runs WHERE list_contains(CAST(? AS VARCHAR[]), workload) AND status = 'succeeded'
GROUP BY workload HAVING count(DISTINCT platform) > 1 ORDER BY count(*) DESC, workload LIMIT 1"""

_GAINED = """
SELECT workload, platform, count(*) FROM runs WHERE run_id NOT IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY ALL ORDER BY count(*) DESC, workload, platform"""


def _print_next(store_name: str, command: str, *words: str) -> None:
    from gpuagent_collector.runs.words import write_command
    from gpuagent_collector.store.spec import DEFAULT_STORE

    click.echo(
        f"Next: {write_command(command, {'--store': None if store_name == DEFAULT_STORE else store_name}, *words)}"
    )


def _print_merged(store: "Store", merged: "Sequence[Merged]", origin: str) -> None:
    added, known = sum(each.added for each in merged), sum(each.known for each in merged)
    click.echo(f"{store.spec}: {counted(added, 'row')} added{origin}, {known or 'none'} were already stored")


def _import_spool(file: Path, store_name: str) -> None:
    from gpuagent_collector.exchange.spool import import_spool
    from gpuagent_collector.ingest.messages import Verdict
    from gpuagent_collector.store import Store

    with Store.open(store_name) as store, _new_runs_printed(store, store_name):
        counts = import_spool(file, store)
        known = counts[Verdict.DUPLICATE] or "none"
        words = f"{counted(counts[Verdict.COMMITTED], 'message')} stored, {known} were already stored"
        if rejected := counts[Verdict.REJECTED]:
            words += f", {rejected:,} rejected: see the table gaps"
        click.echo(f"{store.spec}: {words}")
