"""The parts of runs that have figures of their own, GPUs, ranks and nodes, and the sessions that sampled them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpuagent_collector.choices import PartKind
from gpuagent_collector.metrics import METRICS
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.run_sessions import on_other_machine, takers
from gpuagent_collector.runs.data import Facts, Record, Run


def name_nodes(records: Iterable[Record]) -> dict[int, str]:
    """Return the name of each node, by node_id, from rows with its last hostname.

    Nodes of one hostname have their UUID or key with it.
    """
    rows = {row["node_id"]: row for row in records}
    hosts = {node_id: row["hostname"] or str(node_id) for node_id, row in rows.items()}
    taken = Counter(hosts.values())
    return {
        node_id: f"{host} ({rows[node_id].get('node_uuid') or node_id})" if taken[host] > 1 else host
        for node_id, host in hosts.items()
    }


def nodes_of_run(ask: Ask, run_id: str) -> dict[int, str]:
    """Return the names of a run's nodes, by node_id."""
    return name_nodes(ask(_NODES, [run_id]))


def gpus_of_run(ask: Ask, run_id: str) -> Sequence[Record]:
    """Return `device_id`, `node_id`, `device_index` and `name` of each of a run's GPUs and MIG instances."""
    return ask(_GPUS, [run_id])


_NODES = """
SELECT DISTINCT run_parts.node_id, sessions.node_uuid, sessions.hostname
FROM run_parts JOIN sessions USING (session_id)
WHERE run_id = ? ORDER BY sessions.hostname, sessions.node_uuid"""

_GPUS = """
SELECT DISTINCT device_id, used.node_id, device_index, name
FROM run_devices AS used JOIN devices USING (device_id)
WHERE run_id = ? ORDER BY used.node_id, device_index, device_id"""


def label_parts(run: Run, facts: Facts, kind: PartKind) -> dict[int, str]:
    """Return the parts of a run, by their key: GPU 0, rank 0, or a node's name; on several nodes `node GPU 0`."""
    hosts = name_nodes(facts.sessions.get(run.run_id, []))
    if kind is PartKind.NODE:
        return dict(sorted(hosts.items(), key=lambda item: item[1]))
    if kind is PartKind.RANK:
        return {rank: f"rank {rank}" for rank in range(int(facts.value(run, "ranks") or 1))}
    found = {row["device_id"]: row for row in facts.devices.get(run.run_id, [])}
    rows = sorted(
        found.values(),
        key=lambda row: (hosts.get(row["node_id"], ""), row["device_index"] or 0, row["uuid"] or "", row["device_id"]),
    )
    places = Counter((row["node_id"], row["device_index"]) for row in rows)
    on_several = len({row["node_id"] for row in rows}) > 1
    labels, seen = {}, Counter[int]()
    for row in rows:
        # MIG instances have the index of their GPU.
        unique = row["device_index"] is not None and places[row["node_id"], row["device_index"]] == 1
        number = row["device_index"] if unique else seen[row["node_id"]]
        seen[row["node_id"]] += 1
        labels[row["device_id"]] = (
            f"{hosts.get(row['node_id'], '')} GPU {number}".strip() if on_several else f"GPU {number}"
        )
    return labels


# run_id → name of a part → metric → value.
Parts = Mapping[str, Mapping[str, Mapping[str, float]]]


def load_parts(ask: Ask, runs: Sequence[Run], facts: Facts, kind: PartKind) -> Parts:
    """Return the figures of each run's parts.

    A run of one part has the run's figures. Runs that were summarised by an earlier version have none.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    labels = {run.run_id: label_parts(run, facts, kind) for run in runs}
    for row in ask(_PARTS, [kind.value, list(labels)]):
        label = labels[row["run_id"]].get(row["part"])
        if label is not None:
            found.setdefault(row["run_id"], {}).setdefault(label, {})[row["metric"]] = row["value"]
    of_kind = [metric.name for metric in METRICS if metric.source.part_kind is kind]
    for run_id, of_run in labels.items():
        if len(of_run) == 1 and run_id not in found:
            figures = facts.metrics.get(run_id, {})
            (label,) = of_run.values()
            found[run_id] = {label: {name: figures[name] for name in of_kind if name in figures}}
        # In the order of the labels, whatever the order of the rows.
        elif run_id in found:
            found[run_id] = {label: found[run_id][label] for label in of_run.values() if label in found[run_id]}
    return found


_PARTS = """
SELECT run_id, metric, part, value FROM metric_parts
WHERE part_kind = ? AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""


def sessions_of_run(ask: Ask, run_id: str) -> list[int]:
    """Return the sessions that sampled the machines of a run."""
    return sorted(row["session_id"] for row in ask(_SESSIONS_OF_RUN, [run_id]) if row["session_id"] is not None)


_SESSIONS_OF_RUN = f"""
WITH asked AS (SELECT CAST(? AS VARCHAR) AS run_id), {takers("SEMI JOIN asked USING (run_id)")}
SELECT session_id FROM takers
UNION
SELECT beside.session_id
FROM takers JOIN sessions AS own USING (session_id)
JOIN sessions AS beside ON beside.node_id = own.node_id AND NOT {on_other_machine("own", "beside")}"""  # noqa: S608 - names of the schema
