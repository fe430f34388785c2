"""Facts in which one node or GPU differs from nearly all others of its kind, and signs of faults. Nothing is tested."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from gpuagent_collector.outliers.readings import SIGNS, Group, Unit, find_units
from gpuagent_collector.output.human import notation
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Record, Run

# Fewer units, or a less common value, say nothing about one that differs.
_LEAST_UNITS = 3
_LEAST_SHARE = 0.75

# Xid errors that a program can cause by itself.
_OF_PROGRAMS = (13, 31, 43, 45)

# The link's width is read from samples: these are looked at up to this long before the newest run.
_LINK_TIME = timedelta(days=1)

# Column → title and unit.
_OF_GPUS = {
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
    return [
        *(
            Oddity(unit=units[row["device_id"]], what=f"Xid {row['number']}", value=_error(row), usual=None, share="")
            for row in errors
        ),
        *_find_signs(groups),
        *_find_odd(_group(devices, units, ("name",)), _OF_GPUS),
        *_find_odd(_group(nodes, units, ("platform", "cpu_model", "instance_type")), _OF_NODES),
    ]


def _error(row: Record) -> str:
    return f"{row['words'] or 'unknown'}, {row['times']} ×"


def _find_signs(groups: Sequence[Group]) -> Iterator[Oddity]:
    for group in groups:
        for unit, value in group.values.items() if group.metric.name in SIGNS else ():
            if value > 0:
                yield Oddity(unit=unit, what=group.metric.title, value=f"{value:g}", usual=None, share="")


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
