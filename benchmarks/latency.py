"""The age of a sample when a query can first see it."""

import time

import pyarrow as pa

from benchmarks.figures import Figure
from gpuagent_collector.query.reader import open_reader
from tests.support.servers import Node, until

QUERIES = 200


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
        ),
        Figure(name="sample to queryable, 99th percentile", unit="s", values=[ages[int(0.99 * len(ages))]]),
    ]
