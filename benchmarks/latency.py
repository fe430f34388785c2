"""The age of a sample when a query can first see it."""

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.figures import Figure, short
from benchmarks.ingest.http import get
from benchmarks.ingest.victoria_metrics import JSON_LINES
from gpuagent_collector.query.reader import open_reader
from tests.support.servers import Node, until

QUERIES = 200
VICTORIA_QUERIES = 20


def measure(node: Node) -> list[Figure]:
    """Return the age of the newest host sample, asked for again and again while an agent streams."""
    process = node.start("gpuagent", "start", "--platform", "bench", log="agent.log")
    with_reader = open_reader(
        address=node.environment["GPUAGENT_COLLECTOR"], token_file=node.folder / "token", store=None
    )
    query = "SELECT epoch(max(time)) AS newest FROM host_samples WHERE time > now()::TIMESTAMP - INTERVAL 20 SECOND"

    def newest() -> float:
        answer: pa.Table = with_reader.sql(query)
        return answer.column("newest")[0].as_py() or 0.0

    first = until(newest, "a sample")
    ages: list[float] = []
    seen = first
    while len(ages) < QUERIES:
        found = newest()
        if found > seen:
            # The sample before `found` waited longest: it became visible only now.
            ages.append(time.time() - seen)
            seen = found
    with_reader.close()
    node.stop(process)
    ages.sort()
    return [
        Figure(
            name="sample to queryable",
            unit="s",
            values=ages,
            note="age of the oldest sample that a commit made visible",
            peers=_victoria_metrics(),
        ),
        Figure(name="sample to queryable, 99th percentile", unit="s", values=[ages[int(0.99 * len(ages))]]),
    ]


def _victoria_metrics() -> str:
    """Return the median age of a sample that VictoriaMetrics exports, of samples that are sent as they are made.

    Its flush alone, each second; gpuagent's figure has the agent's flush as well.
    """
    if not shutil.which(JSON_LINES.program or ""):
        return "VictoriaMetrics not installed"
    ages = []
    with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as folder, JSON_LINES.serve(Path(folder)) as server:
        url = f"http://127.0.0.1:{server.sender(0).port}/api/v1"  # type: ignore[attr-defined]  # a Post
        # The first makes the series, which is found later than its next samples.
        for _ in range(1 + VICTORIA_QUERIES):
            made = time.time()
            line = f'{{"metric":{{"__name__":"age"}},"values":[1],"timestamps":[{1000 * made:.0f}]}}'
            get(f"{url}/import", line.encode())
            until(lambda since=made - 0.001: get(f"{url}/export?match[]=age&start={since:.3f}"), "the sample")  # type: ignore[misc]
            ages.append(time.time() - made)
    return f"VictoriaMetrics {short(statistics.median(ages[1:]))} s, without an agent that collects for a second"
