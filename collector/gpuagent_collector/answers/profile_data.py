"""Operators and kernels of traced runs, by name, part and lane."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from gpuagent_collector.choices import PartKind
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Record, Run
from gpuagent_collector.runs.parts import label_parts
from gpuagent_common.text import harmless

# The name of all operations without a row of their own.
OTHERS = "(others)"


def traced_runs(ask: Ask) -> frozenset[str]:
    """Return the runs that have a trace."""
    return frozenset(row["run_id"] for row in ask("SELECT DISTINCT run_id FROM op_times"))


def why_not_traced(ask: Ask, run_id: str) -> str | None:
    """Return the reason that the run reported for its failed trace; None: no report."""
    rows = ask(_FAILURE, [run_id])
    return rows[0]["value_text"] if rows else None


_FAILURE = "SELECT value_text FROM results WHERE run_id = ? AND name = 'trace_failed' ORDER BY time DESC LIMIT 1"


def load_operations(ask: Ask, run_ids: Sequence[str]) -> Mapping[str, Sequence[Record]]:
    """Return the operations of each run: all calls of a name, a step, in the mean over traced steps and ranks.

    `cpu_self_seconds` is an operator's time on the host without what it called, `gpu_self_seconds` the GPU's for what
    it launched itself, and `gpu_seconds` that of a kernel, copy or set. They are None where they do not apply.
    """
    operations: dict[str, list[Record]] = defaultdict(list)
    for row in ask(_OPERATIONS, [run_ids]):
        operations[row["run_id"]].append(row)
    return operations


_OPERATIONS = """
WITH times AS (
    SELECT * FROM op_times WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
), traced AS (
    SELECT run_id, CAST(sum(steps) AS DOUBLE) AS all_steps  -- of all ranks: one that never called it has no row
    FROM (SELECT run_id, rank, max(steps) AS steps FROM times GROUP BY ALL) GROUP BY run_id
)
SELECT run_id, kind, name, coalesce(sum(calls), 0) / all_steps AS calls,
       sum(cpu_self_seconds) / all_steps AS cpu_self_seconds, sum(gpu_seconds) / all_steps AS gpu_seconds,
       sum(gpu_self_seconds) / all_steps AS gpu_self_seconds
FROM times JOIN traced USING (run_id)
WHERE kind IS NOT NULL AND name IS NOT NULL AND all_steps > 0
GROUP BY run_id, kind, name, all_steps"""


def load_step_seconds(ask: Ask, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    """Return the busy and idle time of the GPU in a step of each run, as result → mean over ranks."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in ask(_STEP_SECONDS, [run_ids]):
        found[row["run_id"]][row["name"]] = row["value"]
    return found


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
        return sorted(longest, key=lambda name: (-longest[name], name))


def load_part_times(ask: Ask, side: str, run: Run, facts: Facts, kind: PartKind) -> PartTimes:
    """Return the operations of each part of a traced run."""
    labels = label_parts(run, facts, kind)
    seconds: dict[str, dict[str, float]] = {label: {} for label in labels.values()}
    on_gpu = False
    for row in ask(_TIMES.format(part=_KEYS[kind]), [run.run_id, run.run_id]):
        if row["part"] in labels:
            seconds[labels[row["part"]]][row["name"]] = row["seconds"]
            on_gpu = row["on_gpu"]
    known = {label: of_part for label, of_part in seconds.items() if of_part}
    return PartTimes(side=side, on_gpu=on_gpu, seconds=known)


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
), of_ranks AS (
    SELECT {part} AS part, rank, name, on_gpu, seconds FROM times LEFT JOIN places USING (rank)
    WHERE seconds > 0 AND on_gpu = (SELECT bool_or(on_gpu) FROM times)
)
SELECT part, name, any_value(on_gpu) AS on_gpu, sum(seconds) / any_value(ranks) AS seconds
FROM of_ranks JOIN (SELECT part, count(DISTINCT rank) AS ranks FROM of_ranks GROUP BY part) USING (part)
GROUP BY part, name"""


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
    # The names with numbers after those that are still equal.
    alike = {given for given, number in Counter(short.values()).items() if number > 1}
    known = set(short.values()) - alike
    numbered: dict[str, str] = {}
    for name, given in short.items():
        candidates = (f"{given} #{number}" for number in count(1))
        numbered[name] = next(each for each in candidates if each not in known) if given in alike else given
        known.add(numbered[name])
    return numbered


def _short(name: str, depth: int) -> str:
    name = harmless(_without_arguments(_NOISE.sub("", name), depth))
    if len(name) <= LONGEST_NAME:
        return name
    # Both ends: the difference between two names is often at the end.
    head = LONGEST_NAME * 2 // 3
    return f"{name[:head]}{_CUT}{name[head + 1 - LONGEST_NAME :]}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Operations whose times can be added up.

    Attributes:
        name: for programs.
        title: for people.
        kinds: of the operations.
        time: their time that is meant.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """The calls and the time of an operation on one side, a step; the share is of the side's time in the lane."""

    calls: float
    seconds: float
    share_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An operation on each side; None: missing there.

    Attributes:
        short_name: differs from those of the other rows.
        unsure: whether it may be among the others of a side on which it is missing.
    """

    kind: str
    name: str
    short_name: str
    amounts: tuple[Amount | None, ...]
    unsure: bool

    @property
    def seconds(self) -> float:
        """The time on the last of two sides less that on the first; of one side, its time."""
        first, *rest = (amount.seconds if amount else 0.0 for amount in self.amounts)
        return rest[0] - first if rest else first

    @property
    def longest_seconds(self) -> float:
        """The time on the side on which it takes longest."""
        return max(amount.seconds for amount in self.amounts if amount)

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

    @property
    def exclusive(self) -> list[Row]:
        """The operations that only one of two sides has; none where a side has no data."""
        if None in self.totals:
            return []
        return [row for row in self.rows if row.only_on is not None and row.name != OTHERS]


def add_up(sides: Sequence[Sequence[Record]]) -> tuple[LaneTimes, ...]:
    """Return the lanes in which some side has operations; `sides` are one or two."""
    lanes = (_add_up_lane(lane, sides) for lane in (KERNELS, COPIES, LAUNCHERS, HOST))
    return tuple(lane for lane in lanes if lane.rows)


def _add_up_lane(lane: Lane, sides: Sequence[Sequence[Record]]) -> LaneTimes:
    # Most operators launch nothing themselves: without time in a lane they are not in it.
    timed = []
    for operations in sides:
        found = [one for one in operations if one["kind"] in lane.kinds and (one[lane.time] or 0) > 0]
        timed.append({(one["kind"], one["name"]): one for one in found})
    totals = [sum(one[lane.time] for one in side.values()) if side else None for side in timed]
    keys = dict.fromkeys(key for side in timed for key in side)
    short, rows = {**short_names(name for _, name in keys), OTHERS: "(others: without a row of their own)"}, []
    for kind, name in keys:
        amounts: list[Amount | None] = []
        for side, total in zip(timed, totals, strict=True):
            one = side.get((kind, name))
            seconds = one[lane.time] if one else 0.0
            amounts.append(
                Amount(calls=one["calls"], seconds=seconds, share_percent=100 * seconds / total)
                if one and total
                else None
            )
        unsure = any(side and (kind, name) not in side and (kind, OTHERS) in side for side in timed)
        rows.append(Row(kind=kind, name=name, short_name=short[name], amounts=tuple(amounts), unsure=unsure))
    rows.sort(key=lambda row: (-abs(row.seconds), -row.longest_seconds, row.name))
    return LaneTimes(lane=lane, rows=tuple(rows), totals=tuple(totals))
