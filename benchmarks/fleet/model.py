"""The cost of nodes, extrapolated from a few measured ones.

Everything that is linear is taken as linear; docs/scale.md says where that ends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.fleet.messages import POWER_HZ
from benchmarks.fleet.simulate import Observed
from benchmarks.gpu_series import GPUS, RATE_HZ, ROWS_A_SECOND
from gpuagent_collector.ingest.writer import Gathering

# Longest time that a collector on a lake gathers: --commit-interval.
COMMIT_SECONDS = 10.0

# GPUs, their power, the host.
NODE_ROWS_A_SECOND = ROWS_A_SECOND + GPUS * POWER_HZ + RATE_HZ

# CPU time per second planned for a collector of two cores: half of them.
COLLECTOR_CORES = 1.0

# Of a commit; a table with more of them gets a file: DATA_INLINING_ROW_LIMIT of the store.
INLINED_ROWS = 1000

MONTH_SECONDS = 365.25 / 12 * 86_400
DAY_SECONDS = 86_400
HOUR_SECONDS = 3_600

_TABLE_ROWS_A_SECOND = (ROWS_A_SECOND, GPUS * POWER_HZ, RATE_HZ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Measurements of nodes with eight GPUs at ten samples a second.

    Attributes:
        wire_bytes: a node and second, before TLS.
        stored_bytes: a node and second, after compaction, in the lake's files.
        cpu_idle: CPU seconds a second that a collector takes without nodes.
        cpu_node: CPU seconds a second that each node adds.
        catalog_rows: that a commit leaves in the catalog, a mark of each node apart.
        commits_a_second: that one catalog took at most, of several collectors.
        scanned_rows: a core and second, of a mean of each GPU and minute.
    """

    wire_bytes: float
    stored_bytes: float
    cpu_idle: float
    cpu_node: float
    catalog_rows: float
    commits_a_second: float
    scanned_rows: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The predicted needs of a fleet; rates are per second."""

    nodes: int
    collectors: int
    wire_bytes: float
    rows: float
    cpu: float
    commits: float
    catalog_rows: float
    files: float
    stored_bytes: float


def fit(few: Observed, many: Observed, *, commits_a_second: float, scanned_rows: float) -> Cost:
    """Return the costs that fit two observations of one collector."""
    cpu_node = (many.cpu_seconds / many.seconds - few.cpu_seconds / few.seconds) / (many.nodes - few.nodes)
    return Cost(
        wire_bytes=many.wire_bytes / many.nodes / many.sampled_seconds,
        stored_bytes=many.stored_bytes / many.nodes / many.sampled_seconds,
        cpu_idle=few.cpu_seconds / few.seconds - few.nodes * cpu_node,
        cpu_node=cpu_node,
        catalog_rows=many.catalog_rows / many.commits - many.nodes,
        commits_a_second=commits_a_second,
        scanned_rows=scanned_rows,
    )


def predict(cost: Cost, nodes: int, collectors: int | None = None) -> Fleet:
    """Return the needs of a number of nodes, with as many collectors as required."""
    needed = math.ceil(nodes * cost.cpu_node / (COLLECTOR_CORES - cost.cpu_idle))
    count = collectors or needed
    wire_bytes = nodes * cost.wire_bytes
    commits = max(count / COMMIT_SECONDS, wire_bytes / Gathering().size_bytes)
    rows_a_commit = [nodes * rows / commits for rows in _TABLE_ROWS_A_SECOND]
    files = sum(rows > INLINED_ROWS for rows in rows_a_commit)
    inlined_rows = sum(rows for rows in rows_a_commit if rows <= INLINED_ROWS)
    return Fleet(
        nodes=nodes,
        collectors=count,
        wire_bytes=wire_bytes,
        rows=nodes * NODE_ROWS_A_SECOND,
        cpu=count * cost.cpu_idle + nodes * cost.cpu_node,
        commits=commits,
        catalog_rows=commits * (cost.catalog_rows + nodes / count + inlined_rows),
        files=commits * files,
        stored_bytes=nodes * cost.stored_bytes,
    )


def compared(fleet: Fleet, observed: Observed) -> Sequence[tuple[str, float, float]]:
    """Return predictions and measurements per second: name, predicted, measured."""
    return (
        ("bytes a second on the wire", fleet.wire_bytes, observed.wire_bytes / observed.sampled_seconds),
        ("CPU of the collector, cores", fleet.cpu, observed.cpu_seconds / observed.seconds),
        ("commits a second", fleet.commits, observed.commits / observed.seconds),
        ("files a second before compaction", fleet.files, observed.files / observed.seconds),
        ("catalog rows a second", fleet.catalog_rows, observed.catalog_rows / observed.seconds),
        ("bytes stored a second", fleet.stored_bytes, observed.stored_bytes / observed.sampled_seconds),
    )
