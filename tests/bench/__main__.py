"""`make bench` and `make bench-agent`: measure and print; names choose parts.

With --write a table goes into docs/benchmarks.md too.
"""

import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from tests.bench import agent_cost, compare_speed, ingest, latency, slowdown, soak, startup
from tests.bench.figures import HEADER, Figure
from tests.support.servers import Node

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- make bench -->", "<!-- end of make bench -->"


_PARTS: dict[str, Callable[[Node], Iterable[Figure]]] = {
    "startup": lambda _node: startup.measure(),
    "latency": latency.measure,
    "ingest": ingest.measure,
    "compare": lambda _node: compare_speed.measure(),
    "agent": agent_cost.measure,
    "slowdown": slowdown.measure,
    "soak": soak.measure,
}
_USUAL = ("startup", "latency", "ingest", "compare")


def main() -> None:
    """Measure, and print each figure as it comes."""
    wanted = [name for name in sys.argv[1:] if name in _PARTS] or _USUAL
    lines = [_machine(), "", HEADER]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as folder:
        node = Node(Path(folder))
        try:
            node.serve()
            for name in wanted:
                for figure in _PARTS[name](node):
                    lines.append(figure.row())
                    print(lines[-1], flush=True)
        finally:
            node.close()
    if "--write" in sys.argv:
        _write("\n".join(lines))


def _machine() -> str:
    memory_gib = psutil.virtual_memory().total / 2**30
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{day}: {psutil.cpu_count()} CPUs ({model}), {memory_gib:.0f} GiB, Python {platform.python_version()}."


def _write(table: str) -> None:
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
