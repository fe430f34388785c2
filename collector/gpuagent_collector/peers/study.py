"""Peers of a run: from its name to its place among them, figure by figure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuagent_collector.choices import PartKind
from gpuagent_collector.metrics import Metric
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import identify_command
from gpuagent_collector.runs.data import Facts, Run, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import find_runs
from gpuagent_collector.runs.parts import Parts, label_parts, load_parts
from gpuagent_collector.runs.reported import by_run, load_reported
from gpuagent_collector.runs.specs import properties_of
from gpuagent_collector.statistics.tolerance import Tolerance, percentile, tolerance_interval
from gpuagent_common.errors import GpuAgentError, MisuseError

# Shown unless everything is requested; a measuring workload's own rates are always shown.
_USUAL = (
    "throughput",
    "step_seconds",
    "gpu_energy_per_item_joules",
    "mfu_percent",
    "gpu_power_watts",
    "sm_clock_mhz",
    "gpu_temperature_celsius",
    "data_wait_percent",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for the peers of a run.

    Attributes:
        name: a run, its unique beginning, or a node, of which the newest run counts; None: the newest run of all.
        workload, experiment, where: the runs to choose from; None: all.
        each: the parts that are compared instead of whole runs; None: whole runs.
        everything: whether every metric is shown.
    """

    name: str | None = None
    workload: str | None = None
    experiment: str | None = None
    where: str | None = None
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
        nodes: number of other nodes with a like run; runs: like runs on them.
        own_runs: like runs on the run's own nodes, without itself.
    """

    request: Request
    run: Run
    places: tuple[Place, ...]
    differences: tuple[Difference, ...]
    unit: str
    nodes: int
    runs: int
    own_runs: int


def find_peers(ask: Ask, request: Request) -> Peers:
    """Return the place of a run among its peers.

    Raises:
        MisuseError: there is no such run or node, or a condition is invalid.
        GpuAgentError: no run succeeded.
    """
    asked = {"workload": request.workload, "experiment": request.experiment, "where": request.where}
    runs = [run for run in find_runs(ask, find_facet("node"), **asked) if run.status == "succeeded"]
    run = _choose(runs, request.name)
    like = [other for other in runs if _kind(other) == _kind(run)]
    facts = load_facts(ask, [other.run_id for other in like])
    reported = load_reported(ask, like, facts)
    facts = replace(
        facts,
        metrics={
            run_id: {**facts.metrics.get(run_id, {}), **by_run(reported).get(run_id, {})}
            for run_id in (other.run_id for other in like)
        },
    )
    others = [other for other in like if other.nodes != run.nodes]
    newest = list({other.nodes: other for other in others}.values())
    own = [other for other in like if other.nodes == run.nodes and other is not run]
    metrics = {one.metric.name: one.metric for one in reported}
    metrics |= {metric.name: metric for metric in facts.known if request.everything or metric.name in _USUAL}
    places = (
        _part_places(ask, run, newest, own, facts, metrics.values(), request.each)
        if request.each
        else [
            _make_place(metric, "", value, facts.values(newest, metric.name), facts.values(own, metric.name))
            for metric in _sort(metrics.values())
            if (value := facts.value(run, metric.name)) is not None
        ]
    )
    return Peers(
        request=request,
        run=run,
        places=tuple(places),
        differences=tuple(_differences(run, newest, facts, places[0].metric if places else None)),
        unit=facts.unit(like, places[0].metric) if places else "",
        nodes=len(newest),
        runs=len(others),
        own_runs=len(own),
    )


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


def _kind(run: Run) -> tuple[object, ...]:
    """Return what runs must have in common to be peers."""
    circumstances = (run.device, run.node_count, run.environment, run.image, run.interference, run.limits)
    return (run.workload, run.parameters, identify_command(run.command), *circumstances)


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
    """Return the properties in which the peers, or they and the run, differ."""
    own = properties_of(run, facts)
    groups: Mapping[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for peer in newest:
        value = facts.value(peer, metric.name) if metric else None
        for title, text in properties_of(peer, facts).items():
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
