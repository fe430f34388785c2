"""`make bench-gpu`: on a machine with NVIDIA GPUs. Arguments choose parts; others are names of workloads."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import gpu_counters, gpu_elastic, gpu_plain, gpu_ranks, gpu_workloads
from tests.support.servers import Node

_PARTS: dict[str, Callable[[Node], None]] = {
    "plain": gpu_plain.measure,
    "counters": gpu_counters.measure,
    "ranks": gpu_ranks.measure,
    "elastic": gpu_elastic.measure,
}


def main() -> None:
    """Measure and print."""
    wanted = sys.argv[1:] or ["workloads", *_PARTS]
    workloads = [name for name in wanted if name not in ("workloads", *_PARTS)]
    with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as folder:
        node = Node(Path(folder))
        try:
            node.serve()
            if workloads or "workloads" in wanted:
                gpu_workloads.measure(node, workloads)
            for name, measure in _PARTS.items():
                if name in wanted:
                    measure(node)
        finally:
            node.close()


if __name__ == "__main__":
    main()
