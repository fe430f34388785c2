"""Outliers: from the request to the figures that differ, with the share of false ones among them bounded."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import expm1, log
from statistics import median

from gpuagent_collector.metrics import Metric
from gpuagent_collector.outliers.facts import Oddity, find_oddities
from gpuagent_collector.outliers.readings import SIGNS, Group, Kind, Unit, is_either, is_worse, load_groups
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import find_runs
from gpuagent_collector.statistics.outlying import LEAST_VALUES, p_values, q_values
from gpuagent_common.errors import GpuAgentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for outliers.

    Attributes:
        workload, experiment, where: the runs to look at, as in a comparison; None: all.
        last: how many of a unit's runs of a kind count, the newest ones.
        rate: the share of false findings among all, at most, on average.
        delta: a share that is too small to matter.
    """

    workload: str | None = None
    experiment: str | None = None
    where: str | None = None
    last: int = 5
    rate: float = 0.05
    delta: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A figure of a unit that is far from its kind.

    Attributes:
        usual: the median of all units of the kind; units: their number; runs: those of this unit.
        change: the distance from the median, as a share of it.
        q_value: the lowest false discovery rate at which it is found.
    """

    unit: Unit
    kind: Kind
    metric: Metric
    value: float
    usual: float
    units: int
    runs: int
    change: float
    q_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outliers:
    """The findings, the most certain first.

    Attributes:
        tests: number of figures that were tested, over all units.
        units: number of nodes and GPUs with tested figures.
        lone: number of nodes and GPUs without: fewer than five of their kind.
    """

    request: Request
    findings: tuple[Finding, ...]
    oddities: tuple[Oddity, ...]
    tests: int
    units: int
    lone: int


def find_outliers(ask: Ask, request: Request) -> Outliers:
    """Return the nodes and GPUs that differ from others of their kind.

    Raises:
        MisuseError: the workload, experiment or condition is unknown or invalid.
        GpuAgentError: no run succeeded.
    """
    asked = {"workload": request.workload, "experiment": request.experiment, "where": request.where}
    runs = [run for run in find_runs(ask, find_facet("node"), **asked) if run.status == "succeeded"]
    if not runs:
        raise GpuAgentError("no run succeeded, so nothing can be told apart; `collector runs` lists them")
    facts = load_facts(ask, [run.run_id for run in runs])
    groups = load_groups(ask, runs, facts, request.last)
    tested = [finding for group in groups if group.metric.name not in SIGNS for finding in _test(group)]
    rates = q_values([finding.q_value for finding in tested])
    units = {finding.unit for finding in tested}
    found = [
        replace(finding, q_value=rate)
        for finding, rate in zip(tested, rates, strict=True)
        if rate <= request.rate and _is_material(finding, request.delta)
    ]
    return Outliers(
        request=request,
        findings=tuple(sorted(found, key=lambda finding: (finding.q_value, -abs(finding.change)))),
        oddities=tuple(find_oddities(ask, runs, facts, groups)),
        tests=len(tested),
        units=len(units),
        lone=len({unit for group in groups for unit in group.values} - units),
    )


def _is_material(finding: Finding, delta: float) -> bool:
    """Return whether a distance matters: a share of a small percentage does not, only points do."""
    points = abs(finding.value - finding.usual) / 100
    return abs(finding.change) > delta and (finding.metric.unit != "percent" or points > delta)


def _test(group: Group) -> Iterator[Finding]:
    """Yield every unit of a group, with its p-value in place of the q-value; nothing for fewer than five units."""
    units, values = list(group.values), list(group.values.values())
    # A share of nothing is no size.
    if len(values) < LEAST_VALUES or median(values) == 0:
        return
    positive = min(values) > 0
    scaled = [log(value) for value in values] if positive else values
    usual = median(values)
    for unit, value, place, p_value in zip(units, values, scaled, p_values(scaled) or (), strict=True):
        distance = expm1(place - median(scaled)) if positive else (value - usual) / abs(usual)
        # Where only one direction is a concern, the other one cannot be found: the test has one side.
        one_sided = p_value / 2 if is_worse(group.metric, value > usual) else 1.0
        yield Finding(
            unit=unit,
            kind=group.kind,
            metric=group.metric,
            value=value,
            usual=usual,
            units=len(values),
            runs=group.runs[unit],
            change=distance,
            q_value=p_value if is_either(group.metric) else one_sided,
        )
