"""`make bench` and `make bench-agent`: measure and print; names choose parts.

With --write the table goes into docs/benchmarks.md too: in the place of `make bench-agent` if that part is chosen.
"""

import sys
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks.figures import HEADER, write_table
from benchmarks.load import run as load
from benchmarks.machine import describe
from tests.support.servers import Node

# The module of each part, imported when it is wanted: some need torch.
_PARTS = {
    "startup": "startup",
    "latency": "latency",
    "compare": "compare_speed",
    "jobs": "jobs",
    "agent": "agent_cost",
    "states": "agent_states",
    "slowdown": "slowdown",
    "soak": "soak",
    "observe": "observe_cost",
}
_USUAL = ("startup", "latency", "compare")


def main() -> None:
    """Measure, and print each figure as it comes."""
    if sys.argv[1:2] == ["load"]:
        load.main(sys.argv[2:])
        return
    wanted = [name for name in sys.argv[1:] if name != "--write"] or _USUAL
    if unknown := [name for name in wanted if name not in _PARTS]:
        sys.exit(f"python -m benchmarks: no part {', '.join(unknown)}; there are {', '.join(_PARTS)} and load")
    lines = [describe(), "", HEADER]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="gpuagent-bench-") as folder, Node(Path(folder)) as node:
        node.serve()
        for name in wanted:
            for figure in import_module(f"benchmarks.{_PARTS[name]}").measure(node):
                lines.append(figure.row())
                print(lines[-1], flush=True)
    if "--write" in sys.argv:
        write_table("bench-agent" if "agent" in wanted else "bench", "\n".join(lines))


if __name__ == "__main__":
    main()
