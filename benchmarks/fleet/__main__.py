"""`python -m benchmarks.fleet`: the needs of fleets of several sizes, computed from measurements.

With --check nodes are simulated: 25 and 100 of them for the costs, 15 and 200 to see whether these foretell theirs
(about five minutes).
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.fleet.limits import commits_at_most, rows_scanned
from benchmarks.fleet.model import DAY_SECONDS, HOUR_SECONDS, MONTH_SECONDS, Cost, Fleet, compared, fit, predict
from benchmarks.fleet.simulate import Observed, simulate
from benchmarks.gpu_series import ROWS_A_SECOND
from benchmarks.machine import describe, show
from tests.support.postgres import Postgres, postgres

SIZES = (10, 1_000, 100_000)
FITTED, CHECKED = (25, 100), (15, 200)
SECONDS = 40
READER_CORES = 8

# By --check on 2026-11-22: 2 CPUs (AMD EPYC), 24 GiB, PostgreSQL 15; the machine did nothing else.
MEASURED = Cost(
    wire_bytes=32_291,
    stored_bytes=3_558.28,
    cpu_idle=0.06487,
    cpu_node=0.001875,
    catalog_rows=100.75,
    commits_a_second=4.907,
    scanned_rows=18.904e6,
)


def main() -> None:
    """Print the table, and with --check its accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="measure the costs again, and compare")
    cost = _check() if parser.parse_args().check else MEASURED
    show(_fleet_table(cost, [predict(cost, nodes) for nodes in SIZES]))


def _check() -> Cost:
    """Print predicted and measured values, and return the costs."""
    with tempfile.TemporaryDirectory(prefix="gpuagent-fleet-") as name, postgres(durable=True) as server:
        folder = Path(name)
        few, many = (_observe(folder, server, nodes) for nodes in FITTED)
        cost = fit(
            few,
            many,
            commits_a_second=commits_at_most(_new(folder / "commits"), server),
            scanned_rows=rows_scanned(folder),
        )
        seen = [compared(predict(cost, nodes, 1), _observe(folder, server, nodes)) for nodes in CHECKED]
    print(describe())
    print(f"{cost}\n")
    show(_checked_table(seen))
    return cost


def _observe(folder: Path, server: Postgres, nodes: int) -> Observed:
    return simulate(_new(folder / f"{nodes} nodes"), server, nodes=nodes, seconds=SECONDS)


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _checked_table(seen: Sequence[Sequence[tuple[str, float, float]]]) -> Table:
    table = Table("one collector", *(f"{nodes} nodes: {what}" for nodes in CHECKED for what in ("model", "seen")))
    for lines in zip(*seen, strict=True):
        figures = [figure for _, *pair in lines for figure in pair]
        table.add_row(lines[0][0], *map(_short, figures))
    return table


def _fleet_table(cost: Cost, fleets: Sequence[Fleet]) -> Table:
    table = Table("nodes", *(f"{fleet.nodes:,}" for fleet in fleets))
    gpu_rows_a_core = cost.scanned_rows * READER_CORES
    lines: dict[str, Callable[[Fleet], float]] = {
        "collectors of two cores, half used": lambda each: each.collectors,
        "received, MB/s": lambda each: each.wire_bytes / 1e6,
        "rows a second": lambda each: each.rows,
        "commits a second": lambda each: each.commits,
        "the same, by what a catalog took at most": lambda each: each.commits / cost.commits_a_second,
        "catalog: rows more a day, until compacted": lambda each: each.catalog_rows * DAY_SECONDS,
        "files written a day, before compaction": lambda each: each.files * DAY_SECONDS,
        "PUT requests a month, in thousands": lambda each: each.files * MONTH_SECONDS / 1e3,
        "stored a month, GB": lambda each: each.stored_bytes * MONTH_SECONDS / 1e9,
        "one node's day by minute, 8 cores, s": lambda _: ROWS_A_SECOND * DAY_SECONDS / gpu_rows_a_core,
        "everybody's hour by minute, 8 cores, s": lambda each: (
            each.nodes * ROWS_A_SECOND * HOUR_SECONDS / gpu_rows_a_core
        ),
    }
    for name, figure in lines.items():
        table.add_row(name, *(_short(figure(fleet)) for fleet in fleets))
    return table


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


if __name__ == "__main__":
    main()
