"""`make bench-ingest`: one table of one run, of the same values in each database.

Repeats take turns, so that what else the machine does meets all of them. `--seconds 250` for a tenth of the values.
"""

import argparse
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from rich.table import Table

from benchmarks.gpu_series import ROWS_A_SECOND, VALUES_A_SECOND, Rows, node_rows
from benchmarks.ingest import duckdb_alone, ours, prometheus, victoria_metrics
from benchmarks.ingest.contender import Contender
from benchmarks.ingest.sending import encode_all, send_all
from benchmarks.machine import describe, show

NODES = 8
GOAL_MILLIONS_A_SECOND, GOAL_BYTES_A_VALUE = 6.0, 1.2
# As from an agent with a long flush interval.
SECONDS_A_MESSAGE = 10

CONTENDERS = (
    ours.PLAIN,
    ours.ENCRYPTED,
    victoria_metrics.JSON_LINES,
    victoria_metrics.REMOTE_WRITE,
    prometheus.PROMETHEUS,
)
_DUCKDB = "DuckDB alone"
# Columns whose values must all be stored afterwards.
_LOOKED_AT = ("power_watts", "memory_used_bytes", "sm_active_percent")


@dataclass(slots=True, kw_only=True)
class Measured:
    """The resources of one database, by repeat, for a number of values."""

    values: int
    wall_seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    # On disk as it was left.
    left_bytes: list[int] = field(default_factory=list)
    compacted_bytes: list[int] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """Values a second, the median of the repeats."""
        return self.values / statistics.median(self.wall_seconds)

    @property
    def per_cpu_second(self) -> float:
        """Values a second of the server's CPU time, the median of the repeats."""
        return self.values / statistics.median(self.cpu_seconds)

    def bytes_a_value(self, sizes: Sequence[int]) -> float:
        """Return the bytes of a value on disk."""
        return statistics.median(sizes) / self.values


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=2500, help="seconds of samples from each node")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpuagent-bench-ingest-") as folder:
        measured = measure(Path(folder), arguments.seconds, arguments.repeats)
    values, rows = (NODES * each * arguments.seconds / 1e6 for each in (VALUES_A_SECOND, ROWS_A_SECOND))
    print(describe())
    print(f"{values:.3g} M values in {rows:.3g} M rows of {NODES} nodes with 8 GPUs; medians of {arguments.repeats}\n")
    show(_table(measured))
    print(_goals(measured))


def measure(
    folder: Path, seconds: int, repeats: int, *, node_count: int = NODES, contenders: Sequence[Contender] = CONTENDERS
) -> dict[str, Measured]:
    """Return the resources of each installed database, and of DuckDB alone.

    Raises:
        AssertionError: a value is missing in one of them, or another one.
    """
    start_unix_nano = time.time_ns() - (seconds + 60) * 10**9
    nodes = [node_rows(node, seconds, start_unix_nano) for node in range(node_count)]
    there = [each for each in contenders if each.program is None or shutil.which(each.program)]
    sent = folder / "messages"
    sent.mkdir()
    files = {each.encoding: encode_all(sent, each.encoding, each.encode, nodes, SECONDS_A_MESSAGE) for each in there}
    values = sum(rows.count() for rows in nodes)
    measured = {name: Measured(values=values) for name in (*(each.name for each in there), _DUCKDB)}
    for repeat in range(repeats):
        for each in there:
            _measure(folder / f"{each.name} {repeat}", each, files[each.encoding], nodes, measured[each.name])
        _insert(folder / f"{repeat}.duckdb", nodes, measured[_DUCKDB])
    return measured


def _measure(
    folder: Path, contender: Contender, files: Sequence[Path], nodes: Sequence[Rows], measured: Measured
) -> None:
    folder.mkdir()
    with contender.serve(folder) as server:
        process = psutil.Process(server.pid)
        before = process.cpu_times()
        wall_seconds = send_all({file: server.sender(rows.node) for file, rows in zip(files, nodes, strict=True)})
        start = time.perf_counter()
        server.settle()
        measured.wall_seconds.append(wall_seconds + time.perf_counter() - start)
        after = process.cpu_times()
        measured.cpu_seconds.append(after.user + after.system - before.user - before.system)
        for column in _LOOKED_AT:
            _check(contender.name, column, server.read_back(column), nodes)
        measured.left_bytes.append(server.disk_bytes())
        measured.compacted_bytes.append(server.compact())
    shutil.rmtree(folder)


def _insert(file: Path, nodes: Sequence[Rows], measured: Measured) -> None:
    inserted = duckdb_alone.insert_all(file, nodes, SECONDS_A_MESSAGE)
    for column in _LOOKED_AT:
        _check(_DUCKDB, column, duckdb_alone.sum_of(file, "samples", column), nodes)
    measured.wall_seconds.append(inserted.wall_seconds)
    measured.cpu_seconds.append(inserted.cpu_seconds)
    measured.left_bytes.append(file.stat().st_size)
    measured.compacted_bytes.append(file.stat().st_size)
    file.unlink()


def _check(name: str, column: str, found: tuple[int, float], nodes: Sequence[Rows]) -> None:
    values = np.concatenate([rows.columns[column] for rows in nodes])
    sent = np.count_nonzero(~np.isnan(values)), float(np.nansum(values))
    is_same = found[0] == sent[0] and math.isclose(found[1], sent[1], rel_tol=1e-9)
    assert is_same, f"{name} has {found} of {column}, number and sum of its values, instead of {sent}"


def _table(measured: dict[str, Measured]) -> Table:
    table = Table("(by ours)", "M values/s", "M values per CPU second", "bytes a value as left", "compacted")
    for name in (*(each.name for each in CONTENDERS), _DUCKDB):
        there = measured.get(name)
        table.add_row(name, *(_cells(there, measured[ours.PLAIN.name]) if there else ["not installed"]))
    return table


def _goals(measured: dict[str, Measured]) -> str:
    """Return the goals beside what was reached and beside the best other database."""
    us, others = measured[ours.PLAIN.name], [each for name, each in measured.items() if "gpuagent" not in name]
    speed, size = us.per_second / 1e6, us.bytes_a_value(us.compacted_bytes)
    fastest = max(each.per_second / 1e6 for each in others)
    smallest = min(each.bytes_a_value(each.compacted_bytes) for each in others)
    return (
        f"\ngoal: {GOAL_MILLIONS_A_SECOND:g} M values/s; reached {speed:.2f}, fastest other {fastest:.2f}"
        f"\ngoal: at most {GOAL_BYTES_A_VALUE:g} bytes a value, compacted; reached {size:.2f}, "
        f"smallest other {smallest:.2f}"
    )


def _cells(each: Measured, reference: Measured) -> Sequence[str]:
    pairs = (
        (each.per_second / 1e6, reference.per_second / 1e6),
        (each.per_cpu_second / 1e6, reference.per_cpu_second / 1e6),
        (each.bytes_a_value(each.left_bytes), reference.bytes_a_value(reference.left_bytes)),
        (each.bytes_a_value(each.compacted_bytes), reference.bytes_a_value(reference.compacted_bytes)),
    )
    return [f"{figure:.2f} ({figure / theirs:.2f})" for figure, theirs in pairs]


if __name__ == "__main__":
    main()
