"""`make bench-lake`: collectors that share a lake, and queries of it, beside a file. `--seconds 250` is faster.

PostgreSQL, collectors and the processes that send are all on this machine.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.collector_process import CollectorProcess, Commits, start_collector
from benchmarks.compare_speed import fill, timed
from benchmarks.gpu_series import Rows, arrow, node_rows, records
from benchmarks.ingest.sending import encode_all, send_all
from benchmarks.lake_catalog import Catalog, catalog, lake_files
from benchmarks.machine import describe, show
from gpuagent_collector.store import Store
from gpuagent_collector.store.compact import LakeFiles
from tests.support.postgres import Postgres, postgres
from tests.support.servers import BIN, Node

NODES = 8
SECONDS_A_MESSAGE = 10
MOST_COLLECTORS = 3
RUN_SAMPLES = 2_000_000
REPEATS = 3

_QUESTIONS = {
    "`collector compare --no-series`, 1,000 runs": ("compare", "--no-series"),
    "a mean of every GPU and minute, all nodes": (
        "query",
        "sql",
        "SELECT device_id, time_bucket(INTERVAL 1 MINUTE, time) AS minute, avg(power_watts) AS watts, "
        "max(temperature_celsius) AS celsius FROM gpu_samples GROUP BY ALL ORDER BY watts DESC LIMIT 10",
    ),
    "five minutes of one node": (
        "query",
        "sql",
        "SELECT device_id, avg(power_watts) AS watts FROM gpu_samples WHERE node_id = (SELECT max(node_id) FROM "
        "gpu_samples) AND time > (SELECT max(time) FROM gpu_samples) - INTERVAL 5 MINUTE GROUP BY ALL",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of some collectors that store all rows."""

    collectors: int
    wall_seconds: float
    commits: Commits
    before: Catalog
    after: Catalog
    files: LakeFiles
    compact_seconds: float
    files_after: LakeFiles


def main() -> None:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=2500, help="seconds of samples from each node")
    seconds = parser.parse_args().seconds
    start_unix_nano = time.time_ns() - (seconds + 60) * 10**9
    nodes = [node_rows(node, seconds, start_unix_nano) for node in range(NODES)]
    with tempfile.TemporaryDirectory(prefix="gpuagent-bench-lake-") as name, postgres(durable=True) as server:
        folder = Path(name)
        files = encode_all(folder, "gpuagent", records, nodes, SECONDS_A_MESSAGE)
        written, lakes = [], []
        for collectors in range(1, MOST_COLLECTORS + 1):
            lakes.append(f"ducklake:postgres:{server.database()}")
            written.append(_write(folder / f"lake{collectors}", server, lakes[-1], files, collectors))
        asked = _ask(folder, lakes[-1], nodes)
        print(describe())
        print(f"{sum(map(len, nodes)):,} rows, {sum(rows.count() for rows in nodes) / 1e6:.3g} M values\n")
        show(_written_table(written, nodes))
        show(_asked_table(asked))


def _write(folder: Path, server: Postgres, lake: str, files: Sequence[Path], collectors: int) -> Written:
    """Send all messages to the collectors, each from some of the nodes, and compact the lake."""
    folder.mkdir()
    with _serving(folder, lake, collectors) as running:
        before = catalog(server, lake)
        wall_seconds = send_all(
            {file: running[node % collectors].stream(node) for node, file in enumerate(files)},
        )
        commits = reduce(add, (each.commits() for each in running))
        after = catalog(server, lake)
        files_before = lake_files(lake)
        start = time.perf_counter()
        Node(folder).run("collector", "compact", "--store", lake)
        compact_seconds = time.perf_counter() - start
    files_after = lake_files(lake)
    return Written(
        collectors=collectors,
        wall_seconds=wall_seconds,
        commits=commits,
        before=before,
        after=after,
        files=files_before,
        compact_seconds=compact_seconds,
        files_after=files_after,
    )


@contextmanager
def _serving(folder: Path, lake: str, collectors: int) -> Iterator[list[CollectorProcess]]:
    # At full speed a commit comes when there are enough rows; do not wait for the last one.
    options = ("--store", lake, "--data", str(folder / "files"), "--commit-interval", "1")
    with Node(folder) as node:
        yield [start_collector(node, *options, log=f"collector{number}.log") for number in range(collectors)]


def _ask(folder: Path, lake: str, nodes: Sequence[Rows]) -> dict[str, tuple[float, float]]:
    """Return the seconds that each question takes of a file with the same rows, and of the lake."""
    file = str(folder / "same.duckdb")
    with Store.open(file) as store, store.connect() as connection:
        for rows in nodes:
            connection.register("incoming", arrow(rows))
            connection.execute("INSERT INTO gpu_samples BY NAME SELECT * FROM incoming")
    for store_name in (file, lake):
        fill(store_name, RUN_SAMPLES)
        Node(folder).run("collector", "compact", "--store", store_name)
    return {
        question: (_asked_seconds(words, file), _asked_seconds(words, lake)) for question, words in _QUESTIONS.items()
    }


def _asked_seconds(words: Sequence[str], store: str) -> float:
    command = [str(BIN / "collector"), *words, "--store", store]
    return median(timed(command)[0] for _ in range(REPEATS))


def _written_table(written: Sequence[Written], nodes: Sequence[Rows]) -> Table:
    rows, values = sum(map(len, nodes)), sum(each.count() for each in nodes)
    table = Table("writing", *(f"{each.collectors} collector{'s' * (each.collectors > 1)}" for each in written))
    lines: dict[str, Callable[[Written], str]] = {
        "rows a second, in all": lambda each: f"{rows / each.wall_seconds:,.0f}",
        "values a second, in all": lambda each: f"{values / each.wall_seconds:,.0f}",
        "commits": lambda each: f"{each.commits.count}",
        "commit, median": lambda each: f"{each.commits.quantile_seconds(0.5):.2g} s",
        "commit, 99th percentile": lambda each: f"{each.commits.quantile_seconds(0.99):.2g} s",
        "catalog: rows more a commit": lambda each: f"{(each.after.rows - each.before.rows) / each.commits.count:.0f}",
        "catalog: bytes more a commit": lambda each: (
            f"{(each.after.size_bytes - each.before.size_bytes) / each.commits.count:,.0f}"
        ),
        "files": lambda each: f"{each.files.count}",
        "`collector compact`": lambda each: f"{each.compact_seconds:.1f} s",
        "files after it": lambda each: f"{each.files_after.count}",
        "bytes a value after it": lambda each: f"{each.files_after.size_bytes / values:.2f}",
    }
    for name, cell in lines.items():
        table.add_row(name, *map(cell, written))
    return table


def _asked_table(asked: dict[str, tuple[float, float]]) -> Table:
    table = Table("asking, start of the command included", "file", "lake", "lake by file")
    for question, (file_seconds, lake_seconds) in asked.items():
        ratio = f"{lake_seconds / file_seconds:.2f}"
        table.add_row(question, f"{file_seconds:.2f} s", f"{lake_seconds:.2f} s", ratio)
    return table


if __name__ == "__main__":
    main()
