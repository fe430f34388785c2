"""Runs of two nodes that take turns, and what a comparison says of them."""

from typing import Any

from gpuagent_collector.compare.comparison import Comparison, Request, compare
from tests.integration.compare.synthetic import Node, SyntheticStore


def alternate(
    store: SyntheticStore,
    *,
    first: dict[str, Any] | None = None,
    second: dict[str, Any] | None = None,
    first_node: dict[str, Any] | None = None,
    second_node: dict[str, Any] | None = None,
) -> tuple[Node, Node]:
    """Add five runs on each of the platforms alder and birch, taking turns."""
    nodes = (
        store.node("alder-node", "alder", **(first_node or {})),
        store.node("birch-node", "birch", **(second_node or {})),
    )
    for repeat in range(5):
        for turn, (node, settings) in enumerate(zip(nodes, (first or {}, second or {}), strict=True)):
            run = {"start_seconds": (2 * repeat + turn) * 20, "repeat": repeat + 1, **settings}
            store.run(f"{('first', 'second')[turn]}-{repeat}", node, **run)
    return nodes


def compared(store: SyntheticStore, **request: Any) -> Comparison:
    """Write what was added, and compare the runs."""
    return compare(store.ask, Request(**request))


def codes(comparison: Comparison) -> set[str]:
    return {caveat.code for caveat in comparison.caveats}


def warnings(store: SyntheticStore, **request: Any) -> dict[str, str]:
    """Write what was added, compare the runs and return code and text of each warning."""
    return {caveat.code: caveat.text for caveat in compared(store, **request).caveats}


def texts(comparison: Comparison) -> str:
    return "\n".join(caveat.text for caveat in comparison.caveats)
