"""Operations of one or two sides, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.profile.data import OTHERS, Operation


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
class Table:
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


def make_tables(sides: Sequence[Sequence[Operation]]) -> tuple[Table, ...]:
    """Return the lanes in which some side has operations; `sides` are one or two."""
    tables = (_table(lane, sides) for lane in LANES)
    return tuple(table for table in tables if table.rows)


def _table(lane: Lane, sides: Sequence[Sequence[Operation]]) -> Table:
    timed = [_time_operations(lane, operations) for operations in sides]
    totals = [sum(seconds for _, seconds in side.values()) if side else None for side in timed]
    names = dict.fromkeys(key for side in timed for key in side)
    rows = [_row(key, timed, totals) for key in names]
    rows.sort(key=lambda row: (-abs(row.seconds), -max(amount.seconds for amount in row.amounts if amount)))
    return Table(lane=lane, rows=tuple(rows), totals=tuple(totals))


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
