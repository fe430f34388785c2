"""`collector outliers`: nodes and GPUs that differ from their kind."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import expm1, log
from statistics import median
from typing import Any

from gpuagent_collector.compare.caveats import find_disturbances
from gpuagent_collector.metrics import BY_NAME, Better, Metric
from gpuagent_collector.present.answer import Answer, Caveat, Section
from gpuagent_collector.present.human import change, notation, significant, temperature_change
from gpuagent_collector.present.shortening import shorten
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Record, Run, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import Choice, find_runs
from gpuagent_collector.runs.like import LikeKey, group_like
from gpuagent_collector.runs.parts import name_nodes
from gpuagent_collector.runs.reported import is_of_node, load_reported
from gpuagent_collector.runs.words import percent, write_command
from gpuagent_collector.statistics.outlying import LEAST_VALUES, p_values, q_values
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import counted

# Of whole runs, of each GPU, and of each rank. A slow rank takes long and waits for nobody: the others wait for it.
_OF_RUNS = ("throughput", "step_seconds", "gpu_energy_per_item_joules")
_OF_GPUS = ("gpu_power_watts", "sm_clock_mhz", "gpu_temperature_celsius", "dram_active_percent")
_OF_RANKS = ("step_seconds", "exposed_communication_percent", "data_wait_percent")
# Above 0 each of these is a fault by itself.
SIGNS = ("gpu_ecc_errors_uncorrected", "gpu_memory_repair_pending", "gpu_memory_repair_failed")

# A GPU that draws little power or waits little may be the bad one: both directions count. So do they for clocks and all
# else without a better direction.
_EITHER = ("gpu_power_watts", "exposed_communication_percent", "dram_active_percent")


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """A node, or one of its GPUs."""

    name: str
    node_id: int
    # None: the node itself.
    device_id: int | None = None

    @property
    def is_gpu(self) -> bool:
        """Return whether it is a GPU."""
        return self.device_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One figure of all units in like runs.

    Attributes:
        values: of each unit the median over its last runs.
        runs: of each unit their number.
    """

    kind: LikeKey
    metric: Metric
    values: Mapping[Unit, float]
    runs: Mapping[Unit, int]


def load_groups(ask: Ask, runs: Sequence[Run], facts: Facts, last: int) -> list[Group]:
    """Return the figures of each kind of run.

    Args:
        ask: runs a query on the store.
        runs: those that succeeded, oldest first.
        facts: about these runs.
        last: how many of a unit's runs of a kind count, the newest ones.
    """
    # By the unit too, since steps/s and items/s are not alike.
    gathered: dict[tuple[LikeKey, bool, str, str], dict[Unit, list[float]]] = defaultdict(lambda: defaultdict(list))
    run_of = {run.run_id: run for run in runs}
    metrics: dict[str, Metric] = dict(BY_NAME)
    kinds = {run.run_id: key for key, like in group_like(runs, "platform", "node_count").items() for run in like}
    order = {run.run_id: number for number, run in enumerate(runs)}
    readings = sorted(_read(ask, runs, facts, metrics), key=lambda reading: order[reading[0]])
    for run_id, name, unit, value in readings:
        of_metric = facts.unit([run_of[run_id]], metrics[name])
        gathered[kinds[run_id], unit.is_gpu, name, of_metric][unit].append(value)
    return [
        Group(
            kind=kind,
            metric=replace(metrics[name], unit=of_metric),
            values={unit: median(values[-last:]) for unit, values in units.items()},
            runs={unit: len(values[-last:]) for unit, values in units.items()},
        )
        for (kind, _, name, of_metric), units in gathered.items()
    ]


def is_either(metric: Metric) -> bool:
    """Return whether a deviation in either direction is a concern."""
    return metric.name in _EITHER or metric.better is None


def is_worse(metric: Metric, above: bool) -> bool:
    """Return whether a deviation in this direction is a concern, of a metric with a better direction."""
    return above is (metric.better is Better.LOWER)


# run_id, figure, unit, value.
Reading = tuple[str, str, Unit, float]


def _read(ask: Ask, runs: Sequence[Run], facts: Facts, metrics: dict[str, Metric]) -> Iterator[Reading]:
    units = find_units(facts)
    ids = [run.run_id for run in runs]
    ranks = {(row["run_id"], row["rank"]): row["device_id"] for row in ask(_RANKS, [ids])}
    for run in runs:
        gpus = {row["device_id"] for row in facts.devices.get(run.run_id, [])}
        nodes = {row["node_id"] for row in facts.sessions.get(run.run_id, [])}
        # The figures of a run are those of its only GPU, or of its only node.
        owner = units.get(min(gpus)) if len(gpus) == 1 else units.get(min(nodes)) if len(nodes) == 1 else None
        names = (*_OF_RUNS, *_OF_GPUS, *_OF_RANKS[1:], *SIGNS) if len(gpus) == 1 else _OF_RUNS
        figures = facts.metrics.get(run.run_id, {})
        if owner:
            yield from ((run.run_id, name, owner, figures[name]) for name in names if name in figures)
    for row in ask(_PARTS, [ids, [*_OF_GPUS, *SIGNS], list(_OF_RANKS)]):
        device = ranks.get((row["run_id"], row["part"])) if row["part_kind"] == "rank" else row["part"]
        if device in units:
            yield row["run_id"], row["metric"], units[device], row["value"]
    for one in load_reported(ask, runs, facts):
        device = ranks.get((one.run_id, one.rank))
        sessions = facts.sessions.get(one.run_id, [])
        unit = units.get(device) if device else units.get(sessions[0]["node_id"]) if len(sessions) == 1 else None
        # A collective is of all GPUs of the node.
        if unit and is_of_node(one.metric.name) and len(sessions) == 1:
            unit = units[sessions[0]["node_id"]]
        if unit:
            metrics.setdefault(one.metric.name, one.metric)
            yield one.run_id, one.metric.name, unit, one.value


def find_units(facts: Facts) -> dict[int, Unit]:
    """Return the nodes and GPUs of the runs, by node_id and device_id; the last word on each counts."""
    hosts = name_nodes(_all(facts.sessions))
    nodes = {node_id: Unit(name, node_id) for node_id, name in hosts.items()}
    gpus = {}
    for row in _all(facts.devices):
        number = row["device_id"] if row["device_index"] is None else row["device_index"]
        name = f"{hosts.get(row['node_id'], row['node_id'])} GPU {number}"
        gpus[row["device_id"]] = Unit(name, row["node_id"], row["device_id"])
    return {**nodes, **gpus}


def _all(groups: Mapping[str, list[Record]]) -> list[Record]:
    return [row for rows in groups.values() for row in rows]


_RANKS = """
SELECT run_id, rank, any_value(device_id) AS device_id FROM run_devices
WHERE rank IS NOT NULL AND device_id IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY run_id, rank"""

_PARTS = """
SELECT run_id, metric, part_kind, part, value FROM metric_parts
WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND (
    part_kind = 'gpu' AND metric IN (SELECT unnest(CAST(? AS VARCHAR[])))
    OR part_kind = 'rank' AND metric IN (SELECT unnest(CAST(? AS VARCHAR[])))
)"""


# Fewer units, or a less common value, say nothing about one that differs.
_LEAST_UNITS = 3
_LEAST_SHARE = 0.75

# Xid errors that a program can cause by itself.
_OF_PROGRAMS = (13, 31, 43, 45)

# The link's width is read from samples: these are looked at up to this long before the newest run.
_LINK_TIME = timedelta(days=1)

# Column → title and unit.
_FACTS_OF_GPUS = {
    "power_limit_watts": ("power limit", "watts"),
    "sm_clock_max_mhz": ("highest SM clock", "megahertz"),
    "memory_clock_max_mhz": ("highest memory clock", "megahertz"),
    "memory_total_bytes": ("memory", "bytes"),
    "pcie_generation_max": ("PCIe generation, most", ""),
    "pcie_width_max": ("PCIe lanes, most", ""),
    "pcie_width_seen": ("PCIe lanes in use", ""),
    "ecc_mode": ("ECC", ""),
    "mig_mode": ("MIG", ""),
}
_OF_NODES = {
    "gpu_count": ("GPUs", ""),
    "driver_version": ("GPU driver", None),
    "kernel": ("kernel", None),
    "memory_total_bytes": ("memory", "bytes"),
    "cpu_threads": ("CPU threads", ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """A fact about one unit that is worth a look.

    Attributes:
        usual: the value of the others; None: the fact is a fault by itself.
        share: how many others have that, and of how many, in words; '' without others.
    """

    unit: Unit
    what: str
    value: str
    usual: str | None
    share: str


def find_oddities(ask: Ask, runs: Sequence[Run], facts: Facts, groups: Sequence[Group]) -> list[Oddity]:
    """Return the facts in which a unit differs from at least three quarters of its kind, and all signs of faults."""
    units = find_units(facts)
    newest = max((run.ended_at for run in runs if run.ended_at), default=None)
    devices = {row["device_id"]: dict(row) for rows in facts.devices.values() for row in rows}
    nodes = {row["node_id"]: dict(row) for rows in facts.sessions.values() for row in rows}
    if newest:
        since = (newest - _LINK_TIME).isoformat()
        for row in ask(_LINKS, [since, list(devices)]):
            devices[row["device_id"]]["pcie_width_seen"] = row["width"]
        errors = ask(_ERRORS, [since, list(devices), list(_OF_PROGRAMS)])
    else:
        errors = []
    signs = []
    for group in groups:
        for unit, value in group.values.items() if group.metric.name in SIGNS else ():
            if value > 0:
                signs.append(Oddity(unit=unit, what=group.metric.title, value=f"{value:g}", usual=None, share=""))
    xids = []
    for row in errors:
        unit, words = units[row["device_id"]], f"{row['words'] or 'unknown'}, {row['times']} ×"
        xids.append(Oddity(unit=unit, what=f"Xid {row['number']}", value=words, usual=None, share=""))
    return [
        *xids,
        *signs,
        *_find_odd(_group(devices, units, ("name",)), _FACTS_OF_GPUS),
        *_find_odd(_group(nodes, units, ("platform", "cpu_model", "instance_type")), _OF_NODES),
    ]


Described = list[tuple[Unit, Record]]


def _group(records: Mapping[int, Record], units: Mapping[int, Unit], by: Sequence[str]) -> list[Described]:
    kinds: dict[tuple[object, ...], Described] = defaultdict(list)
    for key, record in records.items():
        kinds[tuple(record.get(name) for name in by)].append((units[key], record))
    return list(kinds.values())


def _find_odd(kinds: Sequence[Described], columns: Mapping[str, tuple[str, str | None]]) -> Iterator[Oddity]:
    for kind in kinds:
        for column, (title, unit) in columns.items():
            known = [(one, record[column]) for one, record in kind if record.get(column) is not None]
            if len(known) < _LEAST_UNITS:
                continue
            ((usual, count),) = Counter(value for _, value in known).most_common(1)
            if count < _LEAST_SHARE * len(known):
                continue
            for one, value in known:
                if value != usual:
                    share = f"{count} of {len(known)}"
                    yield Oddity(
                        unit=one, what=title, value=_write(value, unit), usual=_write(usual, unit), share=share
                    )


def _write(value: object, unit: str | None) -> str:
    if value is None:
        return ABSENT
    return str(value) if unit is None else notation([float(str(value))], unit).write(float(str(value)))


# The widest link that was seen: some rest narrower.
_LINKS = """
SELECT device_id, max(pcie_width) AS width FROM gpu_health_samples
WHERE time >= CAST(? AS TIMESTAMP) AND pcie_width IS NOT NULL AND device_id IN (SELECT unnest(CAST(? AS BIGINT[])))
GROUP BY device_id"""

_ERRORS = """
SELECT device_id, number, any_value(words) AS words, count(*) AS times FROM gpu_events
WHERE event = 'xid' AND time >= CAST(? AS TIMESTAMP) AND device_id IN (SELECT unnest(CAST(? AS BIGINT[])))
    AND number NOT IN (SELECT unnest(CAST(? AS BIGINT[])))
GROUP BY device_id, number ORDER BY device_id, number"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Choice):
    """A request for outliers.

    Attributes:
        last: how many of a unit's runs of a kind count, the newest ones.
        rate: the share of false findings among all, at most, on average.
        delta: a share that is too small to matter.
    """

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
    kind: LikeKey
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
        nearest: of the other figures that were tested, those least likely by chance, the first first.
        tests: number of figures that were tested, over all units.
        units: number of nodes and GPUs with tested figures.
        lone: number of nodes and GPUs without: fewer than five of their kind.
        nodes: names of the nodes with runs.
        shared: a workload that several nodes ran alike, if possible that of the nearest figure; None: there is none.
        caveats: what else scatters figures, where some were tested and none is found to differ.
    """

    request: Request
    findings: tuple[Finding, ...]
    nearest: tuple[Finding, ...]
    oddities: tuple[Oddity, ...]
    tests: int
    units: int
    lone: int
    nodes: tuple[str, ...]
    shared: str | None
    caveats: tuple[Caveat, ...]


def find_outliers(ask: Ask, request: Request) -> Outliers:
    """Return the nodes and GPUs that differ from others of their kind.

    Raises:
        MisuseError: the workload, experiment or condition is unknown or invalid.
        GpuAgentError: no run succeeded.
    """
    runs = [run for run in find_runs(ask, find_facet("node"), **request.conditions) if run.status == "succeeded"]
    if not runs:
        raise GpuAgentError("no run succeeded, so nothing can be told apart; `collector runs` lists them")
    facts = load_facts(ask, [run.run_id for run in runs])
    groups = load_groups(ask, runs, facts, request.last)
    tested = [finding for group in groups if group.metric.name not in SIGNS for finding in _test(group)]
    rates = q_values([finding.q_value for finding in tested])
    units = {finding.unit for finding in tested}
    tested = [replace(finding, q_value=rate) for finding, rate in zip(tested, rates, strict=True)]
    tested.sort(key=lambda finding: (finding.q_value, -abs(finding.change)))
    found: list[Finding] = []
    others: list[Finding] = []
    for finding in tested:
        if finding.q_value <= request.rate and _is_material(finding, request.delta):
            found.append(finding)
        else:
            others.append(finding)
    shared = [one.kind.workload for one in groups if len({unit.node_id for unit in one.values}) > 1]
    shared.sort(key=lambda workload: not others or workload != others[0].kind.workload)
    return Outliers(
        request=request,
        findings=tuple(found),
        nearest=tuple(others[:MOST_ROWS]),
        oddities=tuple(find_oddities(ask, runs, facts, groups)),
        tests=len(tested),
        units=len(units),
        lone=len({unit for group in groups for unit in group.values} - units),
        nodes=tuple(sorted({run.nodes for run in runs if run.nodes})),
        shared=shared[0] if shared else None,
        caveats=tuple(find_disturbances({"": runs}, facts)) if others and not found else (),
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


# The answer names so many; the tables have the others.
_MOST_NAMED = 3

# Of what ran, in a table.
_MOST_CHARACTERS = 40


def _by_unit(outliers: Outliers) -> dict[str, list[str]]:
    """Return what is unlike its kind, by unit: facts first, then the most certain figures."""
    by_unit: dict[str, list[str]] = {}
    for oddity in outliers.oddities:
        usual = f", {oddity.share} have {oddity.usual}" if oddity.usual else ""
        by_unit.setdefault(oddity.unit.name, []).append(f"{oddity.what} {oddity.value}{usual}")
    for finding in outliers.findings:
        by_unit.setdefault(finding.unit.name, []).append(f"{finding.metric.title} {_change(finding)}")
    return by_unit


def answer(outliers: Outliers, *, most: int = _MOST_NAMED) -> str:
    """Return the units to look at first, and what was looked at."""
    by_unit = _by_unit(outliers)
    if not outliers.tests and not by_unit:
        known = f"only {outliers.nodes[0]} has runs" if len(outliers.nodes) == 1 else "no kind has so many with runs"
        return (
            f"It takes {LEAST_VALUES} nodes or GPUs of one kind that ran the same to find those that differ, and "
            f"{known}. The experiment fleet-check, run on each node, measures all of them alike."
        )
    figures = counted(outliers.tests, "figure")
    seen = f"{figures} of {outliers.units} nodes or GPUs {'was' if outliers.tests == 1 else 'were'} tested."
    if not by_unit:
        said = (
            f"No node or GPU is shown to differ from its kind, where each counts once, however many runs it has. {seen}"
        )
        near = outliers.nearest[0] if outliers.nearest else None
        if near and near.q_value < 1:
            said += f" The least likely by chance is {near.unit.name}: {near.metric.title} {_change(near)} "
            limit = f"found at {outliers.request.rate:g} or less"
            if near.q_value <= outliers.request.rate:
                limit = f"but {percent(outliers.request.delta)} or less does not count"
            said += f"(q: {_write_q(near.q_value)}, {limit})."
        if _compares_nodes(outliers):
            said += " The next command compares nodes by their single runs, which shows more where few nodes are alike."
        return said
    number = f"{len(by_unit)} nodes or GPUs differ" if len(by_unit) > 1 else "One node or GPU differs"
    named = [f"{unit}: {'; '.join(what[:_MOST_NAMED])}." for unit, what in list(by_unit.items())[:most]]
    return " ".join([f"{number} from others of the same kind.", *named, seen])


def _write_q(rate: float) -> str:
    return "< 0.0001" if rate < 0.0001 else significant(rate, 2)


def _change(finding: Finding) -> str:
    if finding.metric.unit == "celsius":
        return temperature_change(finding.usual, finding.value)
    return change(1 + finding.change) if finding.change > -1 else f"{100 * finding.change:.0f} %"


def answer_outliers(ask: Ask, **asked: Any) -> Answer:
    """Answer the command; `asked` are the fields of a request."""
    return render(find_outliers(ask, Request(**asked)))


# Of more nodes a comparison of each has too many rows.
_MOST_COMPARED = 12


def _compares_nodes(outliers: Outliers) -> bool:
    """Return whether the next command compares nodes: nothing was found, and few nodes ran the same."""
    has_found = outliers.findings or outliers.oddities
    return bool(outliers.shared) and not has_found and len(outliers.nodes) <= _MOST_COMPARED


def _next(outliers: Outliers) -> str:
    """Return the command that shows the first node that differs beside its peers, else what changed over time."""
    units = [one.unit.name for one in outliers.findings] + [one.unit.name for one in outliers.oddities]
    node = units[0].partition(" GPU ")[0] if units else ""
    # A node whose name others have too cannot be named alone.
    request = outliers.request
    chosen = {"--experiment": request.experiment, "--where": request.where}
    if node and "(" not in node:
        return write_command("peers", {"--workload": request.workload, **chosen}, node)
    if _compares_nodes(outliers):
        return write_command("compare", {"--by": "node", "--workload": outliers.shared, **chosen})
    if outliers.tests or node:
        return write_command("history", chosen, *filter(None, [request.workload]))
    return "gpuagent experiment run fleet-check"


def render(outliers: Outliers) -> Answer:
    """Return the answer; CSV has a line for each finding and fact."""
    findings, oddities = _findings(outliers.findings), Table(_FACT, outliers.oddities)
    # A row for each node and GPU that differs, with what differs most.
    columns = (
        Column(None, "", lambda row: row[0], left=True),
        Column(None, "differs most in", lambda row: row[1][0], left=True),
        Column(None, "also in", lambda row: "; ".join(row[1][1:_MOST_NAMED]) or None, left=True),
    )
    overview = Table(columns, [[unit, what] for unit, what in _by_unit(outliers).items()], most=MOST_ROWS)
    others = ("Figures that are not found, the least likely by chance first", _findings(outliers.nearest))
    tables = (("Figures", findings), ("Facts, not tested", oddities), others)
    found = [{**line, "what": line["figure"]} for line in findings.records()]
    found += [{**line, "what": line["fact"]} for line in oddities.records()]
    return Answer(
        heading="Nodes and GPUs that differ from others of their kind",
        text=answer(outliers),
        short=answer(outliers, most=0),
        parts=[overview] if overview.rows else [],
        sections=[
            *(Section(heading, [table], is_detail=True) for heading, table in tables if table.rows),
            Section("How to read this", [_legend(outliers)], is_detail=True),
        ],
        caveats=outliers.caveats,
        next=_next(outliers),
        more="figures with their tests, and how to read this" if outliers.tests else "how to read this",
        facts={
            "rate": outliers.request.rate,
            "delta": outliers.request.delta,
            "tests": outliers.tests,
            "units": outliers.units,
            "untested_units": outliers.lone,
            "findings": findings,
            "facts": oddities,
        },
        csv=[Table([Column(name) for name in _LINE], found)],
    )


_UNIT = (Column("unit", "", "unit.name", left=True), Column("node_id", value="unit.node_id"))
_DEVICE = Column("device_id", value="unit.device_id")
_FACT = (
    *_UNIT,
    _DEVICE,
    Column("fact", "fact", "what", left=True),
    Column("value", "value", left=True),
    Column("usual", "others", left=True),
    Column("share", value=lambda one: one.share or None),
    Column(None, "how many", "share", left=True),
)
_KIND = ("command", "device", "environment", "image", "interference", "limits")
# CSV has findings and facts in one table, with what tells kinds of one workload apart.
_LINE = (
    *("unit", "what", "value", "usual", "change_percent", "q_value", "workload", "device", "parameters", "command"),
    *("environment", "image", "interference", "limits"),
)


def _findings(findings: Sequence[Finding]) -> Table:
    kinds = [name_kind(finding.kind) for finding in findings]
    short = dict(zip(kinds, shorten(kinds, _MOST_CHARACTERS), strict=True))

    def written(finding: Finding, value: float) -> str:
        return notation([finding.value, finding.usual], finding.metric.unit).write(value)

    columns = (
        *_UNIT,
        _DEVICE,
        Column(None, "in", lambda one: short[name_kind(one.kind)], left=True),
        Column("figure", value="metric.name"),
        Column(None, "figure", "metric.title", left=True),
        Column(None, "value", lambda one: written(one, one.value)),
        Column(None, "its kind (n)", lambda one: f"{written(one, one.usual)} ({one.units})"),
        Column(None, "change", _change),
        *map(Column, ("value", "usual")),
        Column("metric_unit", value="metric.unit"),
        Column("change_percent", value=lambda one: 100 * one.change),
        Column("q_value", "q", show=_write_q),
        *map(Column, ("units", "runs")),
        Column("workload", value="kind.workload"),
        Column("parameters", value=lambda one: json.loads(one.kind.parameters or "{}")),
        *(Column(name, value=f"kind.{name}") for name in _KIND),
    )
    return Table(columns, findings)


def _legend(outliers: Outliers) -> str:
    request = outliers.request
    lone = (
        f" Not tested: {counted(outliers.lone, 'unit')}, without a figure that {LEAST_VALUES} of a kind have."
        if outliers.lone
        else ""
    )
    return (
        f"A unit is a node or a GPU. Each value is the median of its last {counted(request.last, 'run')} of the same "
        "workload, parameters, GPU model and circumstances, beside the median of its kind. Found: figures further from "
        f"it than chance explains, at a false discovery rate of {percent(request.rate)} over all that were tested (q: "
        f"Benjamini and Hochberg), and by more than {percent(request.delta)}. Where only "
        "worse values are a concern, better ones have a q of 1. It assumes that sound "
        f"units scatter with tails no heavier than Student's t with 5 degrees of freedom.{lone}"
    )


def name_kind(kind: LikeKey) -> str:
    """Return what ran, in one line."""
    if kind.command:
        return f"{kind.workload}: {shlex.join(kind.command)}"
    parameters = json.loads(kind.parameters or "{}")
    given = {name: value for name, value in parameters.items() if name in ("ranks", "batch-size")}
    return " ".join([kind.workload, *(f"{name}={value}" for name, value in given.items() if value is not None)])
