"""Peers as a document of paragraphs and tables, and in every format."""

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

from gpuagent_collector.metrics import ITEMS
from gpuagent_collector.output.document import Grid, Paragraph, Section
from gpuagent_collector.output.human import change, notation, significant
from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.peers.study import Difference, Peers, Place
from gpuagent_collector.runs.words import percent, spoken
from gpuagent_collector.statistics.tolerance import Method
from gpuagent_common.text import counted


def answer(peers: Peers) -> str:
    """Return the place of the run's main figure, and the number of figures outside their range."""
    run = f"{peers.run.run_id} on {peers.run.nodes or 'an unknown node'}"
    if not peers.nodes:
        return (
            f"{run} has no peers: no other node has run {peers.run.workload} with the same parameters and "
            f"circumstances on {peers.run.device or 'no GPU'}. {counted(peers.own_runs, 'other run')} of its own node."
        )
    if not peers.places:
        return f"{run} has no figures that could be placed among those of {counted(peers.nodes, 'other node')}."
    return " ".join([f"{run}: {_first(peers)}", *_outside(peers)])


def _first(peers: Peers) -> str:
    first = peers.places[0]
    write = notation([first.value], _unit(first, peers)).write
    part = f" of {first.part}" if first.part else ""
    place = f"{spoken(first.metric, None)}{part} {write(first.value)}"
    if first.percentile is None:
        return f"{place} has no peers."
    among = f"above {significant(first.percentile, 2)} % of {counted(len(first.peers), 'peer')}"
    verdict = {
        None: "too few for a range",
        False: "inside the range of most of them",
        True: "outside the range of most of them",
    }[first.is_outside]
    return f"{place} is {among}, {verdict}{_written_range(first, peers)}."


def _written_range(place: Place, peers: Peers) -> str:
    if place.tolerance is None:
        return ""
    write = notation([place.tolerance.high], _unit(place, peers)).write
    return f" ({write(place.tolerance.low)} to {write(place.tolerance.high)})"


def _outside(peers: Peers) -> Iterator[str]:
    known = [place for place in peers.places[1:] if place.is_outside is not None]
    if known:
        outside = [f"{place.metric.title} {place.part}".strip() for place in known if place.is_outside]
        # A range that holds 95 % of sound peers leaves the others outside.
        expected = significant(sum(1 - place.tolerance.content for place in known if place.tolerance), 2)
        names = f" ({', '.join(outside)})" if outside else ""
        yield (
            f"{len(outside)} of {counted(len(known), 'other figure')} outside their range{names}: of a sound run, "
            f"{expected} would be by chance."
        )


def _unit(place: Place, peers: Peers) -> str:
    return peers.unit if place.metric.unit == ITEMS else place.metric.unit


def build_document(peers: Peers) -> list[Section]:
    """Return the document."""
    run = peers.run
    sections = [
        Section(
            heading=f"Peers of {run.run_id}: {run.workload} on {run.device or 'no GPU'}",
            parts=(Paragraph(text=answer(peers)),),
        )
    ]
    if peers.places and (peers.nodes or peers.own_runs):
        header: tuple[str, ...] = ("", "this run", "peers (n)", "ratio", "percentile", "range", "own node (n)")
        # Most runs are the only ones of their kind on their node.
        columns = slice(None if peers.own_runs else -1)
        table = Grid(header=header[columns], rows=tuple(_row(place, peers)[columns] for place in peers.places))
        sections.append(Section(heading="Figures", parts=(table, Paragraph(text=_legend(peers)))))
    if peers.differences:
        rows = tuple(row for difference in peers.differences for row in _difference_rows(difference, peers))
        parts = (Grid(header=("", "value", "peers", "median"), rows=rows, figures_from=2),)
        title = spoken(peers.places[0].metric, None) if peers.places else "figure"
        sections.append(Section(heading=f"Where peers differ: {title}", parts=parts))
    return sections


def _row(place: Place, peers: Peers) -> tuple[str, ...]:
    middle = _median(place.peers)
    scale = notation([place.value, *([middle] if middle is not None else [])], _unit(place, peers))
    own = _median(place.own)
    tolerance = place.tolerance
    mark = {None: "", False: "", True: " !"}[place.is_outside]
    return (
        f"{place.metric.title} {place.part}".strip(),
        scale.write(place.value),
        ABSENT if middle is None else f"{scale.write_bare(middle)} ({len(place.peers)})",
        change(place.value / middle) if middle and place.value > 0 and middle > 0 else ABSENT,
        ABSENT if place.percentile is None else f"{significant(place.percentile, 2)} %",
        f"{scale.write_bare(tolerance.low)} to {scale.write_bare(tolerance.high)}{mark}" if tolerance else ABSENT,
        ABSENT if own is None else f"{scale.write_bare(own)} ({len(place.own)})",
    )


def _median(values: tuple[float, ...]) -> float | None:
    return median(values) if values else None


def _legend(peers: Peers) -> str:
    methods = {place.tolerance.method for place in peers.places if place.tolerance}
    words = {
        Method.ANY: "by order statistics, for any distribution",
        Method.LOG_NORMAL: "if the peers are log-normal: fewer than 93 show no range for any distribution",
    }
    assumed = "; ".join(words[method] for method in Method if method in methods) or "from 8 peers on"
    tolerance = next((place.tolerance for place in peers.places if place.tolerance), None)
    content, confidence = (tolerance.content, tolerance.confidence) if tolerance else (0.95, 0.95)
    kind = peers.request.each.value if peers.request.each else ""
    of_each = f"each {kind} of " if kind else ""
    once = (
        f", from the {kind} at the same place of each node, since those of a node have much in common" if kind else ""
    )
    return (
        f"Peers: {of_each}the newest like run of each other node ({counted(peers.nodes, 'node')}, "
        f"{counted(peers.runs, 'run')} in all): runs of one node do not count several times. Percentile: the share of "
        f"peers below. Range{once}: holds at least {percent(content)} of such nodes with {percent(confidence)} "
        f"confidence, {assumed}; !: outside. Like runs have the same workload, parameters, GPU model, environment, "
        "image, interference and limits."
    )


def _difference_rows(difference: Difference, peers: Peers) -> Iterator[tuple[str, ...]]:
    known = {text for text, _, _ in difference.values}
    scale = notation([middle for _, _, middle in difference.values], _unit(peers.places[0], peers))
    rows = [(text, str(count), scale.write(middle)) for text, count, middle in difference.values]
    if difference.own not in known:
        rows.append((difference.own, "0", ABSENT))
    for number, (text, count, middle) in enumerate(rows):
        yield ("" if number else difference.title, f"{text}{' (this run)' * (text == difference.own)}", count, middle)


def render(peers: Peers) -> Rendering:
    """Return the forms of the answer: CSV has a line for each figure."""
    return Rendering(
        sections=partial(build_document, peers), record=partial(_record, peers), lines=partial(_lines, peers)
    )


def _record(peers: Peers) -> dict[str, Any]:
    return {
        "answer": answer(peers),
        "run_id": peers.run.run_id,
        "workload": peers.run.workload,
        "device": peers.run.device,
        "nodes": peers.run.nodes,
        "peer_nodes": peers.nodes,
        "peer_runs": peers.runs,
        "own_runs": peers.own_runs,
        "figures": list(_lines(peers)),
        "differences": [
            {
                "property": one.title,
                "own": one.own,
                "values": [{"value": text, "peers": count, "median": middle} for text, count, middle in one.values],
            }
            for one in peers.differences
        ],
    }


def _lines(peers: Peers) -> Iterator[dict[str, Any]]:
    for place in peers.places:
        tolerance = place.tolerance
        yield {
            "figure": place.metric.name,
            "part": place.part or None,
            "unit": _unit(place, peers),
            "value": place.value,
            "peers": len(place.peers),
            "peers_median": _median(place.peers),
            "percentile": place.percentile,
            "range_low": tolerance.low if tolerance else None,
            "range_high": tolerance.high if tolerance else None,
            "range_method": tolerance.method.value if tolerance else None,
            "is_outside": place.is_outside,
            "own_runs": len(place.own),
            "own_median": _median(place.own),
        }
