"""Run every simulation, and write the tables of docs/statistics.md, or with `-` print them."""

import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.statistics import comparing, designs, factorials, fleets, searches
from benchmarks.statistics.tables import Table

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "statistics.md"

# Name of a table in the document → its simulation.
SIMULATIONS: Mapping[str, Callable[[], Table]] = {
    "pairs": comparing.pairs_under_drift,
    "false alarms": comparing.false_alarms,
    "equality": comparing.equality,
    "families": comparing.families,
    "equal families": comparing.equal_families,
    "together": comparing.workloads_together,
    "intervals": comparing.other_intervals,
    "plans": comparing.plans,
    "nodes": comparing.nodes_as_runs,
    "factorials": factorials.factorials,
    "dependences": factorials.dependences,
    "order": designs.orders,
    "ladders": designs.ladders,
    "sequential": designs.sequential,
    "peeking": designs.peeking,
    "warm-up": designs.warm_ups,
    "searches": searches.searches,
    "faults": fleets.faults_found,
    "false discoveries": fleets.false_discoveries,
    "tolerance": fleets.tolerances,
    "tolerance of parts": fleets.tolerances_of_parts,
    "changes": fleets.changes,
    "few days": fleets.few_days,
    "histories": fleets.histories,
}


def main() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    wanted = [name for name in sys.argv[1:] if name != "-"] or SIMULATIONS
    whole = time.perf_counter()
    for name in wanted:
        began = time.perf_counter()
        table = SIMULATIONS[name]().markdown()
        print(f"{name}, {time.perf_counter() - began:.0f} s\n\n{table}\n", flush=True)
        if "-" in sys.argv[1:]:
            continue
        place = rf"(?<=<!-- simulated: {name} -->\n\n).*?(?=\n\n<!-- end -->)"
        before, *found = re.split(place, text, flags=re.DOTALL)
        if len(found) != 1:
            sys.exit(f"{DOCUMENT} has {len(found)} places for the table {name}")
        text = f"{before}{table}{found[0]}"
    print(f"all {len(wanted)}, {time.perf_counter() - whole:.0f} s", flush=True)
    if "-" not in sys.argv[1:]:
        DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
