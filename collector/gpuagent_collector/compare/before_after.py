"""Runs before and after an event on each node, laid out as two sides, node by node."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuagent_collector.errors import NothingToCompareError
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Layout, lay_out
from gpuagent_collector.runs.data import Run, load_facts
from gpuagent_collector.runs.facets import Facet
from gpuagent_collector.runs.releases import EVENTS, find_releases, load_states
from gpuagent_common.errors import MisuseError

SIDES = ("before", "after")


def lay_out_event(ask: Ask, runs: Sequence[Run], text: str) -> Layout:
    """Return the runs before and after the last event on each node.

    Before is the time since the event of the same kind that preceded it. Nodes without such an event are left out.

    Args:
        ask: runs a query on the store.
        runs: those to choose from, oldest first.
        text: an event such as `driver`, or `driver=580.95` for the change to that value.

    Raises:
        MisuseError: there is no such event.
        NothingToCompareError: no node has one with runs on both sides.
    """
    event, _, value = text.partition("=")
    if event not in EVENTS:
        raise MisuseError(f"--before {event} is unknown; there are: {', '.join(EVENTS)}")
    sided = _assign(ask, runs, event, value or None)
    if not sided:
        raise NothingToCompareError(f"nothing to compare: no node has runs on both sides of a change of {text}")
    fixes = frozenset({event} & {"image"})
    facet = Facet(name=event, plural="times", expression="NULL", preposition="", fixes=fixes, in_time=True)
    layouts = []
    for node, of_node in sided.items():
        try:
            layout = lay_out(of_node, facet, SIDES)
        except NothingToCompareError:
            if len(sided) == 1:
                raise
            continue
        # The largest first within a node; nodes by name.
        layouts.append(
            replace(
                layout,
                blocks=tuple(replace(block, held={"node": node, **block.held}) for block in layout.blocks),
                left_out=tuple(replace(one, what=f"{one.what} on {node}") for one in layout.left_out),
            )
        )
    if not layouts:
        raise NothingToCompareError(f"nothing to compare: no node ran the same before and after a change of {text}")
    return Layout(
        facet=facet,
        sides=SIDES,
        blocks=tuple(block for layout in layouts for block in layout.blocks),
        left_out=tuple(one for layout in layouts for one in layout.left_out),
    )


def _assign(ask: Ask, runs: Sequence[Run], event: str, value: str | None) -> Mapping[str, list[Run]]:
    """Return the runs on both sides of each node's event, with `before` or `after` as their side."""
    states = load_states(ask, runs, load_facts(ask, [run.run_id for run in runs]))
    by_node: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.started_at and run.node_count == 1 and event in states.get(run.run_id, {}):
            by_node[run.nodes or "unknown node"].append(run)
    sided = {}
    for node, of_node in sorted(by_node.items()):
        of_node.sort(key=lambda run: (run.started_at, run.run_id))
        places = [(index, release) for index, release in find_releases(of_node, states) if release.event == event]
        wanted = [number for number, (_, release) in enumerate(places) if value in (None, release.after)]
        if wanted:
            number = wanted[-1]
            start = places[number - 1][0] if number else 0
            change = places[number][0]
            end = places[number + 1][0] if number + 1 < len(places) else len(of_node)
            sided[node] = [
                replace(run, side=SIDES[index >= change]) for index, run in enumerate(of_node) if start <= index < end
            ]
    return sided
