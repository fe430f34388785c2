"""The figures of nodes and GPUs in like runs: from summaries of runs, never from samples."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from gpuagent_collector.metrics import BY_NAME, Better, Metric
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.arguments import Command, Identity, identify_command
from gpuagent_collector.runs.data import Facts, Record, Run
from gpuagent_collector.runs.parts import name_nodes
from gpuagent_collector.runs.reported import is_of_node, load_reported

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
class Kind:
    """A kind of run: what ran and in which circumstances, equal for like runs on different nodes.

    Attributes:
        parameters: canonical JSON.
        identity: of the command of a program of the user's own; `command` is that of one of the runs.
    """

    workload: str
    parameters: str
    device: str | None
    environment: str | None
    image: str | None
    interference: str | None
    limits: str | None
    identity: Identity
    command: Command = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One figure of all units in like runs.

    Attributes:
        values: of each unit the median over its last runs.
        runs: of each unit their number.
    """

    kind: Kind
    metric: Metric
    values: Mapping[Unit, float]
    runs: Mapping[Unit, int]


def kind_of(run: Run) -> Kind:
    """Return the kind of a run."""
    return Kind(
        workload=run.workload,
        parameters=run.parameters,
        device=run.device,
        environment=run.environment,
        image=run.image,
        interference=run.interference,
        limits=run.limits,
        identity=identify_command(run.command),
        command=run.command,
    )


def load_groups(ask: Ask, runs: Sequence[Run], facts: Facts, last: int) -> list[Group]:
    """Return the figures of each kind of run.

    Args:
        ask: runs a query on the store.
        runs: those that succeeded, oldest first.
        facts: about these runs.
        last: how many of a unit's runs of a kind count, the newest ones.
    """
    gathered: dict[tuple[Kind, bool, str], dict[Unit, list[float]]] = defaultdict(lambda: defaultdict(list))
    metrics: dict[str, Metric] = dict(BY_NAME)
    by_id = {run.run_id: run for run in runs}
    order = {run.run_id: number for number, run in enumerate(runs)}
    readings = sorted(_read(ask, runs, facts, metrics), key=lambda reading: order[reading[0]])
    for run_id, name, unit, value in readings:
        gathered[kind_of(by_id[run_id]), unit.is_gpu, name][unit].append(value)
    return [
        Group(
            kind=kind,
            metric=metrics[name],
            values={unit: median(values[-last:]) for unit, values in units.items()},
            runs={unit: len(values[-last:]) for unit, values in units.items()},
        )
        for (kind, _, name), units in gathered.items()
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
    gpus = {
        row["device_id"]: Unit(
            f"{hosts.get(row['node_id'], row['node_id'])} GPU {_number(row['device_index'], row['device_id'])}",
            row["node_id"],
            row["device_id"],
        )
        for row in _all(facts.devices)
    }
    return {**nodes, **gpus}


def _number(index: int | None, device_id: int) -> int:
    return device_id if index is None else index


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
