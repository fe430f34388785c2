"""Operators and kernels of traced runs, by name, part and lane."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean

from gpuagent_collector.choices import PartKind
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.parts import label_parts
from gpuagent_common.text import harmless

# The name of all operations without a row of their own.
OTHERS = "(others)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """All calls of one name, in the mean over traced steps and ranks. Times are None where they do not apply.

    Attributes:
        kind: operator, kernel, memcpy or memset.
        name: in full.
        calls: a step.
        cpu_self_seconds: of an operator on the host, a step, without what it called.
        gpu_seconds: of a kernel, copy or set on the GPU, a step.
        gpu_self_seconds: on the GPU, a step, of what an operator launched itself.
    """

    kind: str
    name: str
    calls: float
    cpu_self_seconds: float | None
    gpu_seconds: float | None
    gpu_self_seconds: float | None


def traced_runs(ask: Ask) -> frozenset[str]:
    """Return the runs that have a trace."""
    return frozenset(row["run_id"] for row in ask("SELECT DISTINCT run_id FROM op_times"))


def why_not_traced(ask: Ask, run_id: str) -> str | None:
    """Return the reason that the run reported for its failed trace; None: no report."""
    rows = ask(_FAILURE, [run_id])
    return rows[0]["value_text"] if rows else None


def load_operations(ask: Ask, run_ids: Sequence[str]) -> Mapping[str, tuple[Operation, ...]]:
    """Return the operations of each run."""
    steps = {row["run_id"]: row["steps"] for row in ask(_STEPS, [run_ids])}
    operations: dict[str, list[Operation]] = defaultdict(list)
    for row in ask(_OPERATIONS, [run_ids]):
        number = steps.get(row["run_id"])
        if number:
            operations[row["run_id"]].append(_operation(row, number))
    return {run_id: tuple(found) for run_id, found in operations.items()}


def load_step_seconds(ask: Ask, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    """Return the busy and idle time of the GPU in a step of each run, as result → mean over ranks."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in ask(_STEP_SECONDS, [run_ids]):
        found[row["run_id"]][row["name"]] = row["value"]
    return found


def _operation(row: Mapping[str, object], steps: float) -> Operation:
    def a_step(column: str) -> float | None:
        value = row[column]
        return None if value is None else float(str(value)) / steps

    return Operation(
        kind=str(row["kind"]),
        name=str(row["name"]),
        calls=a_step("calls") or 0.0,
        cpu_self_seconds=a_step("cpu_self_seconds"),
        gpu_seconds=a_step("gpu_seconds"),
        gpu_self_seconds=a_step("gpu_self_seconds"),
    )


_FAILURE = "SELECT value_text FROM results WHERE run_id = ? AND name = 'trace_failed' ORDER BY time DESC LIMIT 1"

_OPERATIONS = """
SELECT run_id, kind, name, CAST(sum(calls) AS DOUBLE) AS calls, sum(cpu_self_seconds) AS cpu_self_seconds,
       sum(gpu_seconds) AS gpu_seconds, sum(gpu_self_seconds) AS gpu_self_seconds
FROM op_times
WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND kind IS NOT NULL AND name IS NOT NULL
GROUP BY ALL"""

_STEPS = """
SELECT run_id, CAST(sum(steps) AS DOUBLE) AS steps  -- of all ranks: one that never called it has no row
FROM (
    SELECT run_id, rank, max(steps) AS steps FROM op_times
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) GROUP BY ALL
)
GROUP BY run_id"""

_STEP_SECONDS = """
SELECT run_id, name, avg(value) AS value
FROM (
    SELECT run_id, rank, name, arg_max(value, time) AS value
    FROM results
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
        AND name IN ('gpu_busy_seconds_per_step', 'gpu_gap_seconds_per_step')
    GROUP BY ALL
)
WHERE value IS NOT NULL
GROUP BY ALL"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTimes:
    """The time of operations on each part of one run, a step.

    Attributes:
        side: the run's.
        on_gpu: whether they are kernels, copies and sets, or else operators on the host.
        seconds: name of a part → operation → seconds a step, in the mean over its ranks.
    """

    side: str
    on_gpu: bool
    seconds: Mapping[str, Mapping[str, float]]

    @property
    def operations(self) -> Sequence[str]:
        """All operations, the longest on any part first."""
        longest: dict[str, float] = defaultdict(float)
        for of_part in self.seconds.values():
            for name, seconds in of_part.items():
                longest[name] = max(longest[name], seconds)
        return sorted(longest, key=lambda name: -longest[name])


def load_part_times(ask: Ask, side: str, run: Run, facts: Facts, kind: PartKind) -> PartTimes:
    """Return the operations of each part of a traced run."""
    labels = label_parts(run, facts, kind)
    of_rank: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    on_gpu = False
    for row in ask(_TIMES.format(part=_KEYS[kind]), [run.run_id, run.run_id]):
        label = labels.get(row["part"])
        if label is not None:
            of_rank[label, row["rank"]][row["name"]] = row["seconds"]
            on_gpu = row["on_gpu"]
    seconds: dict[str, dict[str, float]] = {}
    for label in labels.values():
        ranks = [times for (of_label, _), times in of_rank.items() if of_label == label]
        names = dict.fromkeys(name for times in ranks for name in times)
        if ranks:
            seconds[label] = {name: fmean(times.get(name, 0.0) for times in ranks) for name in names}
    return PartTimes(side=side, on_gpu=on_gpu, seconds=seconds)


# Kind of part → its key, as in label_parts.
_KEYS = {PartKind.GPU: "device_id", PartKind.RANK: "rank", PartKind.NODE: "node_id"}

# The GPU's work where some was traced, else operators on the host. All rows of a rank are of the same traced steps.
_TIMES = """
WITH times AS (
    SELECT rank, node_id, name, kind <> 'operator' AS on_gpu,
           sum(if(kind = 'operator', cpu_self_seconds, gpu_seconds)) / max(steps) AS seconds
    FROM op_times WHERE run_id = ? GROUP BY ALL
), places AS (
    SELECT rank, any_value(device_id) AS device_id FROM run_devices
    WHERE run_id = ? AND device_id IS NOT NULL GROUP BY rank
)
SELECT {part} AS part, rank, name, on_gpu, seconds
FROM times LEFT JOIN places USING (rank)
WHERE seconds > 0 AND on_gpu = (SELECT bool_or(on_gpu) FROM times)"""


# Characters: two lines of a table's column on a narrow terminal.
LONGEST_NAME = 56

_CUT = "…"
# The most levels of template arguments that are kept to distinguish kernels.
_DEEPEST = 3

_NOISE = re.compile(r"^void |\(anonymous namespace\)::|\bat::native::|\bstd::|\bc10::")


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return a short name for each, harmless to a terminal and different for different ones.

    Template arguments and parameters are cut, except those that distinguish the names.
    """
    names = list(dict.fromkeys(names))
    short = {name: _short(name, 0) for name in names}
    for depth in range(1, _DEEPEST + 1):
        taken = Counter(short.values())
        short = {name: _short(name, depth) if taken[given] > 1 else given for name, given in short.items()}
    return _number_equal_names(short)


def _short(name: str, depth: int) -> str:
    return _clip(harmless(_without_arguments(_NOISE.sub("", name), depth)))


def _without_arguments(name: str, depth: int) -> str:
    """Return a C++ name with its template arguments down to a depth, and without the parameters of the function."""
    kept: list[str] = []
    level, before = 0, ""
    for character in name:
        # After a blank, as in "Memcpy HtoD (Pinned -> Device)", there are no parameters, and an arrow closes nothing.
        opens = character in "<(" and (level > 0 or before.isalnum() or before in {"_", ">"})
        if opens and character == "(" and level == 0:
            break
        if character in ">)" and level > 0 and before != "-":
            level -= 1
        if level <= depth:
            kept.append(character)
        if opens:
            level += 1
            if level == depth + 1:
                kept.append(_CUT)
        before = character
    return "".join(kept).strip()


def _clip(name: str) -> str:
    """Return both ends of a name that is too long: the difference between two is often at the end."""
    if len(name) <= LONGEST_NAME:
        return name
    head = LONGEST_NAME * 2 // 3
    return f"{name[:head]}{_CUT}{name[head + 1 - LONGEST_NAME :]}"


def _number_equal_names(short: Mapping[str, str]) -> dict[str, str]:
    """Return the names with numbers after those that are still equal."""
    alike = {given for given, number in Counter(short.values()).items() if number > 1}
    taken = set(short.values()) - alike
    numbered: dict[str, str] = {}
    for name, given in short.items():
        candidates = (f"{given} #{number}" for number in count(1))
        numbered[name] = next(each for each in candidates if each not in taken) if given in alike else given
        taken.add(numbered[name])
    return numbered


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Operations whose times can be added up.

    Attributes:
        name: for programs.
        title: for people.
        kinds: of the operations.
        time: attribute of the operation that holds its time.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    time: str


KERNELS = Lane(name="kernels", title="Kernels on the GPU", kinds=("kernel",), time="gpu_seconds")
COPIES = Lane(name="copies", title="Copies and sets on the GPU", kinds=("memcpy", "memset"), time="gpu_seconds")
LAUNCHERS = Lane(
    name="operators_gpu",
    title="Operators, by the GPU's time for what each launched itself",
    kinds=("operator",),
    time="gpu_self_seconds",
)
HOST = Lane(
    name="operators_host",
    title="Operators on the host, each without what it called",
    kinds=("operator",),
    time="cpu_self_seconds",
)

# Every lane, in the order in which they are shown.
LANES = (KERNELS, COPIES, LAUNCHERS, HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """The calls and the time of an operation on one side, a step; the share is of the side's time in the lane."""

    calls: float
    seconds: float
    share_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An operation on each side; None: missing there. `unsure`: it may be among the others of that side."""

    kind: str
    name: str
    amounts: tuple[Amount | None, ...]
    unsure: bool

    @property
    def seconds(self) -> float:
        """The time on the last of two sides less that on the first; of one side, its time."""
        first, *rest = (amount.seconds if amount else 0.0 for amount in self.amounts)
        return rest[0] - first if rest else first

    @property
    def only_on(self) -> int | None:
        """The one of two sides that has it; None: both."""
        present = [side for side, amount in enumerate(self.amounts) if amount]
        return present[0] if len(present) < len(self.amounts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTimes:
    """A lane: its rows, the largest difference first, or of one side the longest.

    Attributes:
        totals: time of each side a step, in seconds; None: the side has no data in this lane.
    """

    lane: Lane
    rows: tuple[Row, ...]
    totals: tuple[float | None, ...]

    @property
    def difference(self) -> float | None:
        """The total of the last of two sides less that of the first; None: a side is absent, or alone."""
        if len(self.totals) < 2 or self.totals[0] is None or self.totals[1] is None:
            return None
        return self.totals[1] - self.totals[0]


def make_tables(sides: Sequence[Sequence[Operation]]) -> tuple[LaneTimes, ...]:
    """Return the lanes in which some side has operations; `sides` are one or two."""
    tables = (_table(lane, sides) for lane in LANES)
    return tuple(table for table in tables if table.rows)


def _table(lane: Lane, sides: Sequence[Sequence[Operation]]) -> LaneTimes:
    timed = [_time_operations(lane, operations) for operations in sides]
    totals = [sum(seconds for _, seconds in side.values()) if side else None for side in timed]
    names = dict.fromkeys(key for side in timed for key in side)
    rows = [_row(key, timed, totals) for key in names]
    rows.sort(key=lambda row: (-abs(row.seconds), -max(amount.seconds for amount in row.amounts if amount)))
    return LaneTimes(lane=lane, rows=tuple(rows), totals=tuple(totals))


# Kind and name.
Key = tuple[str, str]
# Operation → calls and seconds a step.
Timed = Mapping[Key, tuple[float, float]]


def _time_operations(lane: Lane, operations: Sequence[Operation]) -> Timed:
    found = [(one, getattr(one, lane.time)) for one in operations if one.kind in lane.kinds]
    timed = {(one.kind, one.name): (one.calls, seconds) for one, seconds in found if seconds is not None}
    # Most operators launch nothing themselves: without time in a lane they are not in it.
    return {key: value for key, value in timed.items() if value[1] > 0}


def _row(key: Key, sides: Sequence[Timed], totals: Sequence[float | None]) -> Row:
    kind, name = key
    return Row(
        kind=kind,
        name=name,
        amounts=tuple(_amount(side.get(key), total) for side, total in zip(sides, totals, strict=True)),
        unsure=any(side and key not in side and (kind, OTHERS) in side for side in sides),
    )


def _amount(of_side: tuple[float, float] | None, total: float | None) -> Amount | None:
    if of_side is None or not total:
        return None
    calls, seconds = of_side
    return Amount(calls=calls, seconds=seconds, share_percent=100 * seconds / total)
