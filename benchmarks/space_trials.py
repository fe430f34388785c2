"""Trials of commands that write stores, on disks of every size around the need: `python -m benchmarks.space_trials`.

Each trial runs one command on a small tmpfs disk, enlarges the disk, and compares the rows with those expected. A loss
is silent if the command exits with 0 while rows are missing, or if a failed command has damaged the original store.
Needs root, to mount.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import duckdb

from gpuagent_collector.exchange.backup import backup, shrink
from gpuagent_collector.exchange.changing import Removal
from gpuagent_collector.exchange.export import CheckedExport, export
from gpuagent_collector.exchange.merge import merge
from gpuagent_collector.exchange.tables import RunFilter
from gpuagent_collector.query.reader import FileReader
from gpuagent_collector.schema import load_migrations
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_collector.store.columns import table_columns
from gpuagent_collector.store.retention import Retention
from tests.fault.trials import describe_machine

HEADER = """\
| operation | disks | trials | done | refused | silent losses |
|---|---|--:|--:|--:|--:|"""

KILL_HEADER = """\
| operation | trials | killed before its end | silent losses |
|---|--:|--:|--:|"""

# Of sorting, so that a store has several.
SLICE_ROWS = 10_000
# Samples in a store, of random bits that no compression shortens: some 5 MB.
ROWS = 100_000
KINDS = ("", "ducklake:")
# Difference between the sizes of two disks.
_STEP_BYTES = 2**18
# Trials of an operation end after this many successes.
_SUCCESSES = 5
_LARGE_BYTES = 2**29
_START_MICROS = 1_900_000_000_000_000
_HISTORY = "schema_migrations"

# Rows and sum of their hashes by table.
Digest = Mapping[str, tuple[int, int]]
# Columns by table.
Shape = Mapping[str, list[str]]


def fill(store_name: str, *, first: int = 0, versions: int | None = None) -> None:
    """Make a store with samples and runs, at a version of the schema (None: the newest)."""
    migrations = load_migrations()[:versions]
    with Store.open(store_name, exact=True, migrations=migrations) as store, store.connect() as connection:
        connection.execute(
            f"INSERT INTO core_samples BY NAME SELECT make_timestamp({_START_MICROS} + i * 100000) AS time, "
            f"1 AS session_id, 2 AS node_id, i AS core, hash(i) / 3 AS cpu_percent "
            f"FROM range({first}, {first + ROWS}) r(i)"
        )
        connection.execute("INSERT INTO sessions BY NAME SELECT 1 AS session_id, 2 AS node_id, 'n' AS hostname")
        for run, seconds in (("first", 0), ("second", 4_000)):
            at = f"make_timestamp({_START_MICROS + seconds * 1_000_000})"
            given = f"'{run}' AS run_id, 1 AS session_id, 2 AS node_id"
            connection.execute(f"INSERT INTO run_requests BY NAME SELECT {given}, {at} AS time, 'e' AS experiment")
            for status, later in (("running", 1), ("succeeded", 3_000)):
                time = f"{at} + INTERVAL {later} SECOND"
                connection.execute(
                    f"INSERT INTO run_states BY NAME SELECT {given}, {time} AS time, '{status}' AS status"
                )
            connection.execute(
                f"INSERT INTO run_metrics BY NAME SELECT '{run}' AS run_id, {at} AS computed_at, 'm' AS metric"
            )
        connection.execute("INSERT INTO marks VALUES (1, 7, make_timestamp(1900000000000000))")


def digest(store_name: str, shape: Shape) -> Digest:
    """Return the digest of these columns; a missing table is an empty one."""
    with Store.open(store_name) as store, store.connect() as connection:
        present = table_columns(connection)
        rows = {}
        for table, columns in shape.items():
            if table in present:
                listed = ", ".join(f'"{column}"' for column in columns)
                sql = f'SELECT count(*), coalesce(sum(hash({listed})), 0) FROM "{table}"'
                rows[table] = connection.execute(sql).fetchone() or (0, 0)
        return {table: (count, total) for table, (count, total) in rows.items() if count}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    name: str
    # Makes the disk's content before the command.
    prepare: Callable[[Path], None]
    # Runs the command, in a process of its own, on a folder (the small disk) and a folder with inputs.
    run: Callable[[Path, Path], None]
    # Raises AssertionError if the outcome is a silent loss: given the disk, the inputs, and whether the command exited
    # with 0.
    verify: Callable[[Path, Path, bool], None]


def print_nothing(*_: object) -> None:
    pass


def _name(kind: str) -> str:
    return "lake" if kind else "file"


def _samples(store_name: str) -> int:
    with Store.open(store_name) as store, store.connect() as connection:
        return int((connection.execute("SELECT count(*) FROM core_samples").fetchone() or (0,))[0])


def _read_digest(inputs: Path) -> Digest:
    return {table: tuple(row) for table, row in json.loads((inputs / "digest.json").read_text()).items()}


def expect_same(store_name: str, inputs: Path) -> None:
    shape = json.loads((inputs / "shape.json").read_text())
    assert digest(store_name, shape) == _read_digest(inputs), f"{store_name} has other rows"


def _backup(kind: str) -> Operation:
    def run(disk: Path, inputs: Path) -> None:
        with closing(FileReader(StoreSpec.parse(f"{kind}{inputs}/{_name(kind)}"))) as reader:
            backup(reader, disk / "copy.duckdb", print_nothing)

    def verify(disk: Path, inputs: Path, is_done: bool) -> None:
        expect_same(f"{kind}{inputs}/{_name(kind)}", inputs)
        if is_done:
            expect_same(str(disk / "copy.duckdb"), inputs)
        else:
            assert list(disk.iterdir()) == [], "left something behind"

    return Operation(name=f"backup of a {_name(kind)}", prepare=print_nothing, run=run, verify=verify)


def _export() -> Operation:
    def run(disk: Path, inputs: Path) -> None:
        with closing(FileReader(StoreSpec.parse(f"{inputs}/{_name('')}"))) as reader:
            export(reader, disk / "export", None, print_nothing)

    def verify(disk: Path, inputs: Path, is_done: bool) -> None:
        if not is_done:
            assert list(disk.iterdir()) == [], "left something behind"
            return
        exported = CheckedExport.open(disk / "export")
        with duckdb.connect() as connection:
            rows = {
                table: connection.execute(f"SELECT count(*) FROM '{file}'").fetchall()[0][0]
                for table, file in exported.files.items()
            }
        expected = {table: count for table, (count, _) in _read_digest(inputs).items() if table != "marks"}
        assert {table: count for table, count in rows.items() if count} == expected

    return Operation(name="export", prepare=print_nothing, run=run, verify=verify)


def _import(kind: str, *, into_existing: bool) -> Operation:
    def prepare(disk: Path) -> None:
        if into_existing:
            fill(f"{kind}{disk}/s", first=ROWS // 2)

    def run(disk: Path, inputs: Path) -> None:
        checked = CheckedExport.open(inputs / "export")
        with Store.open(f"{kind}{disk}/s", exact=True) as store:
            merge(checked, store)

    def verify(disk: Path, _inputs: Path, is_done: bool) -> None:
        rows = _samples(f"{kind}{disk}/s") if (disk / "s").exists() else 0
        before = ROWS if into_existing else 0
        assert rows == (before + (ROWS // 2 if into_existing else ROWS) if is_done else before), f"{rows} rows"

    where = "an existing" if into_existing else "a new"
    return Operation(name=f"import into {where} {_name(kind)}", prepare=prepare, run=run, verify=verify)


def _delete(kind: str) -> Operation:
    def run(disk: Path, _inputs: Path) -> None:
        with Store.open(f"{kind}{disk}/s", create=False) as store, store.transaction() as connection:
            Removal.of_runs(connection, RunFilter(run_ids=["first"])).remove()

    def verify(disk: Path, inputs: Path, is_done: bool) -> None:
        if not is_done:
            expect_same(f"{kind}{disk}/s", inputs)
            return
        with Store.open(f"{kind}{disk}/s") as store, store.connect() as connection:
            runs = connection.execute("SELECT run_id FROM run_requests").fetchall()
        assert runs == [("second",)]
        assert _samples(f"{kind}{disk}/s") == ROWS - 29_991

    return Operation(
        name=f"delete from a {_name(kind)}", prepare=lambda disk: fill(f"{kind}{disk}/s"), run=run, verify=verify
    )


def _compact(kind: str) -> Operation:
    def run(disk: Path, _inputs: Path) -> None:
        with Store.open(f"{kind}{disk}/s", create=False) as store:
            now = datetime(2031, 1, 1)  # noqa: DTZ001 - as the store's
            list(store.retain(Retention(samples=timedelta(days=1)), now))
            store.tidy()

    def verify(disk: Path, _inputs: Path, is_done: bool) -> None:
        with Store.open(f"{kind}{disk}/s") as store, store.connect() as connection:
            sql = "SELECT count(*), coalesce(sum(cpu_percent.count), 0) FROM core_rollups"
            rolled, readings = connection.execute(sql).fetchone() or (0, 0)
        left = _samples(f"{kind}{disk}/s")
        assert left + readings == ROWS, f"{left} samples and {rolled} rollups of {readings}"
        assert not (is_done and left), f"{left} samples left"

    return Operation(
        name=f"compact of a {_name(kind)}", prepare=lambda disk: fill(f"{kind}{disk}/s"), run=run, verify=verify
    )


def _sort() -> Operation:
    def run(disk: Path, _inputs: Path) -> None:
        with Store.open(f"{disk}/s", create=False) as store:
            list(store.sort(datetime(2031, 1, 1)))  # noqa: DTZ001 - as the store's
            store.checkpoint()
        shrink(StoreSpec.parse(f"{disk}/s"))

    def verify(disk: Path, inputs: Path, _is_done: bool) -> None:
        expect_same(f"{disk}/s", inputs)

    return Operation(name="sorting of a file", prepare=lambda disk: fill(f"{disk}/s"), run=run, verify=verify)


def _migrate(kind: str) -> Operation:
    def run(disk: Path, _inputs: Path) -> None:
        Store.open(f"{kind}{disk}/s").close()

    def verify(disk: Path, inputs: Path, _is_done: bool) -> None:
        expect_same(f"{kind}{disk}/s", inputs)

    def prepare(disk: Path) -> None:
        fill(f"{kind}{disk}/s", versions=-1)

    return Operation(name=f"migration of a {_name(kind)}", prepare=prepare, run=run, verify=verify)


OPERATIONS = (
    *map(_backup, KINDS),
    _export(),
    *(_import(kind, into_existing=existing) for kind in KINDS for existing in (False, True)),
    *map(_delete, KINDS),
    *map(_compact, KINDS),
    _sort(),
    *map(_migrate, KINDS),
)


def make_inputs(inputs: Path) -> None:
    for kind in KINDS:
        fill(f"{kind}{inputs}/{_name(kind)}")
    fill(str(inputs / "old"), versions=1)
    with closing(FileReader(StoreSpec.parse(str(inputs / _name(""))))) as reader:
        export(reader, inputs / "export", None, print_nothing)
    with duckdb.connect(str(inputs / "old"), read_only=True) as connection:
        shape = {name: list(columns) for name, columns in table_columns(connection).items() if name != _HISTORY}
    shape.pop("commits", None)  # its only row has the time of the migration
    (inputs / "shape.json").write_text(json.dumps(shape))
    (inputs / "digest.json").write_text(json.dumps(digest(str(inputs / _name("")), shape)))


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Yield the mount point of a disk that is large until `resize` makes it small."""
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={_LARGE_BYTES}", "gpuagent-trials", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


def command_of(operation: Operation, disk: Path, inputs: Path) -> list[str]:
    """Return the command that runs an operation in a process of its own; it prints a line when it begins."""
    code = (
        "import sys; from pathlib import Path; from benchmarks.space_trials import OPERATIONS; "
        "from gpuagent_collector.store import sorting; "
        f"sorting.SLICE_ROWS = {SLICE_ROWS}; name, *places = sys.argv[1:]; print('begins', flush=True); "
        "next(each for each in OPERATIONS if each.name == name).run(*map(Path, places))"
    )
    return [sys.executable, "-c", code, operation.name, str(disk), str(inputs)]


def try_kills(operation: Operation, folder: Path, inputs: Path, *, trials: int) -> bool:
    """Kill an operation at a moment drawn from the time that it takes, many times; return whether no rows were lost.

    After each kill it runs again, to its end.
    """
    random, killed, seconds = Random(1), 0, 0.0
    losses: list[str] = []
    for trial in range(trials + 1):
        disk = folder / f"killed-{operation.name.replace(' ', '-')}-{trial}"
        disk.mkdir()
        operation.prepare(disk)
        with subprocess.Popen(command_of(operation, disk, inputs), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            process.stdout.readline()
            began = time.monotonic()
            after = random.uniform(0, seconds) if trial else None  # the first shows how long it takes
            with suppress(subprocess.TimeoutExpired):
                process.wait(after)
            process.kill()
        seconds = seconds or time.monotonic() - began
        killed += process.returncode == -signal.SIGKILL
        try:
            operation.verify(disk, inputs, process.returncode == 0)
            is_done, words = run_alone(operation, disk, inputs)
            assert is_done, words
            operation.verify(disk, inputs, True)
        except Exception as error:  # noqa: BLE001 - a store that cannot be read is lost
            losses.append(f"after {after:.3f} s" if after else "never killed")
            losses[-1] += f": {error}"
        shutil.rmtree(disk)
    print(f"| {operation.name} | {trials} | {killed} | {len(losses)} |", flush=True)
    for loss in losses:
        print(f"  {loss}", file=sys.stderr, flush=True)
    return not losses


def run_alone(operation: Operation, disk: Path, inputs: Path) -> tuple[bool, str]:
    """Run an operation in a process of its own; return whether it exited with 0, and its last line."""
    command = command_of(operation, disk, inputs)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode == 0, (done.stderr.strip().splitlines() or [""])[-1]


def try_operation(operation: Operation, folder: Path, inputs: Path, *, most: int) -> bool:
    """Try an operation on growing disks until it succeeds; return whether no rows were lost."""
    done = refused = 0
    losses: list[str] = []
    sizes: list[float] = []
    while done < _SUCCESSES and len(sizes) < most:
        # A folder of its own: DuckDB lets go of a lake's catalog only some time after it was closed.
        with small_disk(folder / f"{operation.name.replace(' ', '-')}-{len(sizes)}") as disk:
            operation.prepare(disk)
            size_bytes = shutil.disk_usage(disk).used + len(sizes) * _STEP_BYTES
            mount("-o", f"remount,size={max(size_bytes, _STEP_BYTES)}", disk)
            size_mib = size_bytes / 2**20
            is_done, words = run_alone(operation, disk, inputs)
            sizes.append(size_mib)
            mount("-o", f"remount,size={_LARGE_BYTES}", disk)
            refused += not is_done
            try:
                operation.verify(disk, inputs, is_done)
                done += is_done
            except Exception as error:  # noqa: BLE001 - a store that cannot be read is lost
                losses.append(f"{size_mib:.2f} MiB, {'done' if is_done else 'refused'} ({words}): {error}")
    disks = f"{sizes[0]:.1f} to {sizes[-1]:.1f} MiB"
    print(f"| {operation.name} | {disks} | {len(sizes)} | {done} | {refused} | {len(losses)} |", flush=True)
    for loss in losses:
        print(f"  {loss}", file=sys.stderr, flush=True)
    return not losses


def main() -> None:
    parser = argparse.ArgumentParser(description="Try commands that write stores on disks that are too small.")
    parser.add_argument("--only", metavar="TEXT", default="", help="Operations whose name contains this")
    parser.add_argument("--most", type=int, default=60, help="Trials of each operation (default: 60)")
    parser.add_argument("--kills", type=int, default=0, help="Instead kill each so often, on a large disk")
    arguments = parser.parse_args()
    print(describe_machine(), KILL_HEADER if arguments.kills else HEADER, sep="\n\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="gpuagent-trials-") as name:
        folder = Path(name)
        (folder / "inputs").mkdir()
        make_inputs(folder / "inputs")
        chosen = [each for each in OPERATIONS if arguments.only in each.name]
        if arguments.kills:
            results = [try_kills(each, folder, folder / "inputs", trials=arguments.kills) for each in chosen]
        else:
            results = [try_operation(each, folder, folder / "inputs", most=arguments.most) for each in chosen]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
