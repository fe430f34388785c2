"""`collector peers`: the place of a run's figures among those of like runs on other nodes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from gpuagent_collector.answers.reference import answer_reference, published_on
from gpuagent_collector.choices import PartKind
from gpuagent_collector.metrics import BY_NAME, ITEMS, METRICS, Metric
from gpuagent_collector.present.answer import Answer, Legend, Part, Section
from gpuagent_collector.present.human import Notation, change, notation, significant, temperature_change
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import Choice, find_runs
from gpuagent_collector.runs.job_runs import is_job, name_of_job, take_jobs
from gpuagent_collector.runs.like import group_like, like_key
from gpuagent_collector.runs.parts import Parts, label_parts, load_parts
from gpuagent_collector.runs.reported import by_run, load_reported
from gpuagent_collector.runs.specs import properties_of
from gpuagent_collector.runs.words import percent, spoken, write_command
from gpuagent_collector.statistics.changes import LEAST_PART
from gpuagent_collector.statistics.outlying import LEAST_VALUES
from gpuagent_collector.statistics.tolerance import Method, Tolerance, percentile, tolerance_interval
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted

# Shown unless everything is requested; a measuring workload's own rates are always shown.
_USUAL = (
    *("throughput", "run_seconds", "step_seconds", "gpu_energy_per_item_joules", "mfu_percent"),
    *("gpu_power_watts", "sm_clock_mhz", "gpu_temperature_celsius", "data_wait_percent"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Choice):
    """A request for the peers of a run.

    Attributes:
        name: a run, its unique beginning, or a node, of which the newest run counts; None: the newest run of all.
        each: the parts that are compared instead of whole runs; None: whole runs.
        everything: whether every metric is shown.
    """

    name: str | None = None
    each: PartKind | None = None
    everything: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of one figure among the peers.

    Attributes:
        part: the part of the run that it is of; '' is the whole run.
        peers: values of other nodes: of each its newest run; own: of other runs on the same nodes.
        tolerance: the range of most of the peers, from one value of each node; None: too few nodes.
    """

    metric: Metric
    part: str
    value: float
    peers: tuple[float, ...]
    own: tuple[float, ...]
    tolerance: Tolerance | None

    @property
    def percentile(self) -> float | None:
        """The percentage of peers below; None without peers."""
        return percentile(self.value, self.peers) if self.peers else None

    @property
    def is_outside(self) -> bool | None:
        """Return whether it is outside the range of most peers; None: that is unknown."""
        return None if self.tolerance is None else not self.tolerance.low <= self.value <= self.tolerance.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A property in which peers differ: its values, with the number of peers and their median of the first figure."""

    title: str
    own: str
    values: tuple[tuple[str, int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The places of a run's figures; the first is that of its main figure.

    Attributes:
        newest: the newest like run of each other node; runs: number of like runs on these.
        own_runs: like runs on the run's own nodes, without itself.
        units: number of nodes with a like run, the run's own too; of GPUs where nodes have several.
    """

    request: Request
    run: Run
    places: tuple[Place, ...]
    differences: tuple[Difference, ...]
    unit: str
    newest: tuple[Run, ...]
    runs: int
    own_runs: int
    units: int

    @property
    def nodes(self) -> int:
        """The number of other nodes with a like run."""
        return len(self.newest)


def find_peers(ask: Ask, request: Request) -> Peers:
    """Return the place of a run among its peers.

    Raises:
        MisuseError: there is no such run or node, or a condition is invalid.
        GpuAgentError: no run succeeded.
    """
    runs = _find_runs(ask, request)
    # Peers may be on any platform.
    groups = group_like(runs, "platform")
    with_peers = [members for members in groups.values() if len({_unit_of(one) for one in members}) > 1]
    newest = max((members[-1] for members in with_peers), key=runs.index, default=None)
    run = newest if newest and request.name is None else _choose(runs, request.name)
    like = _in_one_unit(ask, run, groups[like_key(run, "platform")])
    others = [other for other in like if _unit_of(other) != _unit_of(run)]
    of_nodes = list({_unit_of(other): other for other in others}.values())
    own = [other for other in like if _unit_of(other) == _unit_of(run) and other is not run]
    like = [run, *of_nodes, *own]
    facts = load_facts(ask, [other.run_id for other in like])
    reported = load_reported(ask, like, facts)
    facts = replace(facts, metrics=facts.columns.joined(by_run(reported)))
    metrics = {one.metric.name: one.metric for one in reported}
    every = request.everything or request.jobs
    of_parts = {each.name for each in METRICS if each.source.part_kind is request.each and not each.detail}
    usual = {*_USUAL, *of_parts} if request.each else _USUAL
    metrics |= {metric.name: metric for metric in facts.known if every or metric.name in usual}
    if facts.value(run, "throughput") is not None and not request.everything and not request.each:
        metrics.pop("run_seconds", None)  # the same, with what came before the first step
    places = (
        _part_places(ask, run, of_nodes, own, facts, metrics.values(), request.each)
        if request.each
        else [
            _make_place(metric, "", value, facts.values(of_nodes, metric.name), facts.values(own, metric.name))
            for metric in _sort(metrics.values())
            if (value := facts.value(run, metric.name)) is not None
        ]
    )
    return Peers(
        request=request,
        run=run,
        places=tuple(places),
        differences=tuple(_differences(run, of_nodes, facts, places[0].metric if places else None)),
        unit=facts.unit(like, BY_NAME["throughput"]),
        newest=tuple(of_nodes),
        runs=len(others),
        own_runs=len(own),
        units=sum(max(1, len(facts.devices.get(one.run_id, ()))) for one in [run, *of_nodes]),
    )


def _in_one_unit(ask: Ask, run: Run, like: Sequence[Run]) -> list[Run]:
    """Return the like runs without those that reported their throughput in another unit than the run."""
    units = {row["run_id"]: row["unit"] for row in ask(_UNITS, [[other.run_id for other in like]])}
    unit = units.get(run.run_id)
    return [other for other in like if unit in (None, units.get(other.run_id, unit))]


_UNITS = """
SELECT run_id, min(unit) AS unit FROM results
WHERE name = 'throughput' AND list_contains(CAST(? AS VARCHAR[]), run_id) GROUP BY run_id"""


def _unit_of(run: Run) -> str | None:
    """Return what counts once: a node; of jobs, which are wherever there was room, each."""
    return run.run_id if is_job(run.run_id) else run.nodes


def _find_runs(ask: Ask, request: Request) -> list[Run]:
    conditions = request.conditions
    if request.jobs and request.name:
        conditions["workload"] = request.name
    return [run for run in find_runs(ask, find_facet("node"), **conditions) if run.status == "succeeded"]


def _sort(metrics: Iterable[Metric]) -> list[Metric]:
    """Return the main figures first."""
    return sorted(metrics, key=lambda metric: _USUAL.index(metric.name) if metric.name in _USUAL else len(_USUAL))


def _choose(runs: Sequence[Run], name: str | None) -> Run:
    """Return the named run, or the newest one of a node or of all."""
    if not runs:
        raise GpuAgentError("no run succeeded, so there are no peers; `collector runs` lists them")
    if name is None:
        return runs[-1]
    on_node = [run for run in runs if run.nodes == name]
    found = on_node[-1:] or [run for run in runs if run.run_id == name]
    found = found or [run for run in runs if run.run_id.startswith(name)]
    if len(found) != 1:
        problem = f"{len(found)} runs begin with {name}" if found else f"no run that succeeded, and no node, is {name}"
        raise MisuseError(f"{problem}; `collector runs` lists the runs")
    return found[0]


def _make_place(
    metric: Metric,
    part: str,
    value: float,
    peers: Sequence[float],
    own: Sequence[float],
    of_nodes: Sequence[float] | None = None,
) -> Place:
    """Return a place; `of_nodes` has one value of each node where `peers` have more."""
    return Place(
        metric=metric,
        part=part,
        value=value,
        peers=tuple(peers),
        own=tuple(own),
        tolerance=tolerance_interval(peers if of_nodes is None else of_nodes),
    )


def _part_places(
    ask: Ask,
    run: Run,
    newest: Sequence[Run],
    own: Sequence[Run],
    facts: Facts,
    metrics: Iterable[Metric],
    kind: PartKind,
) -> list[Place]:
    """Return the places of a run's parts among the parts of its peers.

    Parts of a node have much in common, so a range counts one of each node: that at the same place in their order.
    """
    parts = load_parts(ask, [run, *newest, *own], facts, kind)
    # The parts in their order, also those without figures.
    orders = {peer.run_id: list(label_parts(peer, facts, kind).values()) for peer in newest}
    return [
        _make_place(
            metric,
            part,
            figures[metric.name],
            _of(parts, newest, metric),
            _of(parts, own, metric),
            _at(place, parts, orders, metric),
        )
        for metric in _sort(metrics)
        for place, part in enumerate(label_parts(run, facts, kind).values())
        if metric.name in (figures := parts.get(run.run_id, {}).get(part, {}))
    ]


def _of(parts: Parts, runs: Sequence[Run], metric: Metric) -> list[float]:
    figures = (figures for run in runs for figures in parts.get(run.run_id, {}).values())
    return [each[metric.name] for each in figures if metric.name in each]


def _at(place: int, parts: Parts, orders: Mapping[str, Sequence[str]], metric: Metric) -> list[float]:
    figures = (parts.get(run_id, {}).get(order[place], {}) for run_id, order in orders.items() if place < len(order))
    return [each[metric.name] for each in figures if metric.name in each]


def _differences(run: Run, newest: Sequence[Run], facts: Facts, metric: Metric | None) -> list[Difference]:
    """Return the properties in which the peers, or they and the run, differ; the platform is the first."""

    def read(one: Run) -> dict[str, str]:
        return {"Platform": one.platform or "unknown", **properties_of(one, facts)}

    own = read(run)
    groups: Mapping[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for peer in newest:
        value = facts.value(peer, metric.name) if metric else None
        for title, text in read(peer).items():
            if value is not None:
                groups[title][text].append(value)
    return [
        Difference(
            title=title,
            own=own.get(title, ""),
            values=tuple((text, len(values), median(values)) for text, values in sorted(found.items())),
        )
        for title, found in groups.items()
        if title in own and {own[title], *found} != {own[title]}
    ]


def answer(peers: Peers) -> str:
    """Return the place of the run's main figure, and the number of figures outside their range."""
    run = f"{peers.run.run_id} on {peers.run.nodes or 'an unknown node'}"
    if not peers.nodes and peers.request.jobs:
        return (
            f"{run} has no peers: no other ended job of its user has the name {peers.run.workload}, and as many CPUs, "
            "GPUs and nodes."
        )
    if not peers.nodes:
        return (
            f"{run} has no peers: no other node has run {peers.run.workload} with the same parameters and "
            f"circumstances {_on(peers.run)}. {_among_own(peers)}"
        )
    if not peers.places:
        kind = "other job" if peers.request.jobs else "other node"
        return f"{run} has no figures that could be placed among those of {counted(peers.nodes, kind)}."
    sentences = [f"{run}: {_first(peers)}"]
    if peers.own_runs and peers.places[0].tolerance is None:
        sentences.append(_among_own(peers))
    known = [place for place in peers.places[1:] if place.is_outside is not None]
    if known:
        outside = [f"{place.metric.title} {place.part}".strip() for place in known if place.is_outside]
        # A range that holds 95 % of sound peers leaves the others outside.
        kind = "ordinary job" if peers.request.jobs else "sound run"
        expected = significant(sum(1 - place.tolerance.content for place in known if place.tolerance), 2)
        names = f" ({', '.join(outside)})" if outside else ""
        sentences.append(
            f"{len(outside)} of {counted(len(known), 'other figure')} {'is' if len(outside) == 1 else 'are'} outside "
            f"the range{names}; for {'an' if peers.request.jobs else 'a'} {kind} {expected} would be by chance."
        )
    return " ".join(sentences)


def _on(run: Run) -> str:
    return f"on {run.device}" if run.device else "without a GPU"


def _first(peers: Peers) -> str:
    first = peers.places[0]
    write = notation([first.value], _unit(first, peers)).write
    part = f" of {first.part}" if first.part and _has_parts(peers) else ""
    place = f"{spoken(first.metric, None)}{part} {write(first.value)}"
    if first.percentile is None:
        return f"{place} has no peers."
    several = len(first.peers) > 1
    on_others = _on_other_platforms(peers)
    others = f"{len(first.peers)} peers{on_others}"
    every = f"both peers{on_others}" if len(first.peers) == 2 else f"all {others}"
    among = f"higher than {significant(first.percentile, 2)} % of {others}"
    if not several:
        among = f"equal to {_only_peer(peers)}"
    for is_beyond, word in ((first.value > max(first.peers), "higher"), (first.value < min(first.peers), "lower")):
        if is_beyond:
            among = f"{word} than {every if several else _only_peer(peers)}"
    verdict = {
        None: "which are too few for a range" if several else "too few for a range",
        False: "inside the range of most of them",
        True: "outside the range of most of them",
    }[first.is_outside]
    if first.tolerance is not None:
        write = notation([first.tolerance.high], _unit(first, peers)).write
        verdict += f" ({write(first.tolerance.low)} to {write(first.tolerance.high)})"
    return f"{place} is {among}, {verdict}."


def _on_other_platforms(peers: Peers) -> str:
    """Return how many of the peers' nodes are on another platform than the run; '' where none is, or of jobs."""
    others = [peer.platform or "an unknown platform" for peer in peers.newest if peer.platform != peers.run.platform]
    if not others or peers.request.jobs:
        return ""
    where = others[0] if len(set(others)) == 1 else "other platforms"
    share = f"{len(others)} of" if len(others) < peers.nodes else "all"
    return f" ({share} {peers.nodes} nodes on {where})"


def _only_peer(peers: Peers) -> str:
    """Return the only peer by its node, and platform where that is another one; of several runs there, the newest."""
    if peers.request.jobs or peers.nodes != 1:
        return "its only peer"
    (peer,) = peers.newest
    place = f" on {peer.platform}" if peer.platform != peers.run.platform else ""
    newest = f" (the newest of {peers.runs} runs)" if peers.runs > 1 else ""
    return f"its only peer, {peer.nodes or 'an unknown node'}{place}{newest}"


def _has_parts(peers: Peers) -> bool:
    """Return whether the places are of several parts, which need their names."""
    return len({place.part for place in peers.places}) > 1


def _unit(place: Place, peers: Peers) -> str:
    return peers.unit if place.metric.unit == ITEMS else place.metric.unit


def answer_peers(ask: Ask, *, reference: bool = False, **asked: Any) -> Answer:
    """Answer the command; `asked` are the fields of a request, `reference` compares with the published runs instead.

    Raises:
        MisuseError: also if parts of runs are to be compared with published runs, which have none.
    """
    fields = take_jobs(ask, {**asked, "reference": reference}, "name")
    fields.pop("reference")
    request = Request(**fields)
    if not reference:
        return render(find_peers(ask, request))
    if request.each:
        raise MisuseError("the reference has whole runs; leave out --each, or --reference")
    runs = _find_runs(ask, request)
    if request.name is None and runs:
        return answer_reference(ask, list({(run.workload, run.parameters, run.device): run for run in runs}.values()))
    return answer_reference(ask, [_choose(runs, request.name)])


def _among_own(peers: Peers) -> str:
    """Return the number of other runs on the run's own node, and the range of its first figure where it is known."""
    runs = f"Its own node has {counted(peers.own_runs, 'other such run')}"
    place = next(iter(peers.places), None)
    if place is None or not place.own:
        return f"{runs}."
    scale = notation([place.value], _unit(place, peers))
    low, high = scale.write_bare(min(place.own)), scale.write(max(place.own))
    among = f"{low} to {high}" if place.own[1:] else high
    return f"{runs}, whose {spoken(place.metric, None)} is {among}; here it is {scale.write(place.value)}."


def render(peers: Peers) -> Answer:
    """Return the answer; CSV has a line for each figure."""
    run, figures = peers.run, _figures(peers)
    parts: list[Part] = []
    if peers.places and (peers.nodes or peers.own_runs):
        has_range = any(place.tolerance for place in peers.places)
        of_most = "jobs" if peers.request.jobs else "sound nodes"
        parts = [figures, Legend(f"Range: of most {of_most}; !: outside it." if has_range else "", _legend(peers))]
    sections = []
    if peers.differences:
        title = spoken(peers.places[0].metric, None) if peers.places else "figure"
        sections.append(Section(f"Where peers differ: {title}", [_differing(peers)], is_detail=True))
    return Answer(
        heading=f"Peers of {run.run_id}: {run.workload} {_on(run)}",
        text=answer(peers),
        parts=parts,
        sections=sections,
        next=_next(peers),
        more="every figure, where peers differ, and how to read this",
        facts={
            "run_id": run.run_id,
            "workload": run.workload,
            "device": run.device,
            "nodes": run.nodes,
            "peer_nodes": peers.nodes,
            "peer_runs": peers.runs,
            "own_runs": peers.own_runs,
            "figures": figures,
            "differences": [
                {
                    "property": one.title,
                    "own": one.own,
                    "values": [{"value": text, "peers": count, "median": middle} for text, count, middle in one.values],
                }
                for one in peers.differences
            ],
        },
        csv=[figures],
    )


def _next(peers: Peers) -> str:
    """Return the command that shows the run where it is unlike its peers, else nodes, published runs, its past."""
    if peers.request.jobs:
        is_outside = any(place.is_outside for place in peers.places)
        return write_command("job" if is_outside else "history", {}, sides=[name_of_job(peers.run.run_id)])
    if any(place.is_outside for place in peers.places):
        return write_command("show", {}, peers.run.run_id)
    of_these = {**peers.request.words, "--workload": peers.run.workload}
    if peers.nodes and peers.units < LEAST_VALUES:
        return write_command("compare", {"--by": "node", **of_these})
    if peers.nodes:
        return write_command("outliers", of_these)
    if published_on(peers.run):
        return write_command("peers", {"--reference": ""}, peers.run.run_id)
    if peers.own_runs + 1 < 2 * LEAST_PART:
        return write_command("show", {}, peers.run.run_id)
    return write_command("history", {}, peers.run.workload)


def _figures(peers: Peers) -> Table:
    def scale(place: Place) -> Notation:
        return notation([place.value, _median(place.peers) or 0.0], _unit(place, peers))

    def counted_median(values: Sequence[float], place: Place) -> str | None:
        return f"{scale(place).write_bare(median(values))} ({len(values)})" if values else None

    def range_of(place: Place) -> str | None:
        if place.tolerance is None:
            return None
        write = scale(place).write_bare
        return f"{write(place.tolerance.low)} to {write(place.tolerance.high)}{' !' if place.is_outside else ''}"

    def percentile_of(place: Place) -> str | None:
        # Among one peer it says no more than the change does.
        if place.percentile is None or not place.peers[1:]:
            return None
        return f"{significant(place.percentile, 2)} %"

    has_parts = _has_parts(peers)
    columns = [
        Column(None, "", lambda place: f"{place.metric.title} {place.part * has_parts}".strip(), left=True),
        Column("figure", value="metric.name"),
        Column("part", value=lambda place: place.part or None),
        Column("unit", value=partial(_unit, peers=peers)),
        Column("value"),
        Column(None, "this job" if peers.request.jobs else "this run", lambda place: scale(place).write(place.value)),
        Column("peers", value=lambda place: len(place.peers)),
        Column("peers_median", value=lambda place: _median(place.peers)),
        Column(None, "peers (n)", lambda place: counted_median(place.peers, place)),
        Column(None, "change", _ratio),
        Column("percentile"),
        Column(None, "percentile", percentile_of),
        Column(None, "range", range_of),
        Column("range_low", value="tolerance.low"),
        Column("range_high", value="tolerance.high"),
        Column("range_method", value="tolerance.method"),
        Column("is_outside"),
        Column("own_runs", value=lambda place: len(place.own)),
        Column("own_median", value=lambda place: _median(place.own)),
    ]
    # Most runs are the only ones of their kind on their node.
    if peers.own_runs:
        columns.append(Column(None, "own node (n)", lambda place: counted_median(place.own, place), wide=True))
    return Table(columns, peers.places, most=MOST_ROWS)


def _ratio(place: Place) -> str | None:
    middle = _median(place.peers)
    if middle is not None and place.metric.unit == "celsius":
        return temperature_change(middle, place.value)
    return change(place.value / middle) if middle and place.value > 0 and middle > 0 else None


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
    if peers.request.jobs:
        return (
            f"Peers: {counted(peers.nodes, 'ended job')} of the same user and name with the same CPUs, GPUs and number "
            "of nodes, whichever these were; how they ended is not recorded. Percentile: the share of peers below. "
            f"Range: holds at least {percent(content)} of such jobs with {percent(confidence)} confidence, {assumed}; "
            "!: outside."
        )
    return (
        f"Peers: {of_each}the newest like run of each other node ({counted(peers.nodes, 'node')}, "
        f"{counted(peers.runs, 'run')} in all): runs of one node do not count several times. Percentile: the share of "
        f"peers below. Range{once}: holds at least {percent(content)} of such nodes with {percent(confidence)} "
        f"confidence, {assumed}; !: outside. Like runs have the same workload, parameters, GPU model, environment, "
        "image, interference and limits."
    )


def _differing(peers: Peers) -> Table:
    unit, rows = _unit(peers.places[0], peers) if peers.places else "", []
    for one in peers.differences:
        write, title = notation([middle for _, _, middle in one.values], unit).write, one.title
        values: list[tuple[str, int, str | None]] = [(text, count, write(middle)) for text, count, middle in one.values]
        if one.own not in {text for text, _, _ in one.values}:
            values.append((one.own, 0, None))
        for text, count, middle in values:
            mine = " (this run)" if text == one.own else ""
            rows.append({"property": title, "value": f"{text}{mine}", "peers": count, "median": middle})
            title = ""
    names = Column("property", "", left=True), Column("value", "value", left=True)
    return Table((*names, Column("peers", "peers"), Column("median", "median")), rows)
