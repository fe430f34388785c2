"""The use of the node's CPUs, from /proc/stat. `top` and `mpstat` show the same."""

import re
from collections.abc import Iterable, Mapping, Sequence

from gpuagent.clock import Instant
from gpuagent.sources.source import Computed, Lane, Reading, SourceContext, Value
from gpuagent.sources.support.files import FileSource, read_parsed

# The states of a CPU, in the file's order. Guests' time is part of user and nice already.
_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

# The columns, and the positions of the states that each adds up.
_SHARES = tuple(
    (column, tuple(map(_STATES.index, states)))
    for column, states in (
        ("cpu_percent", ("user", "nice", "system", "irq", "softirq", "steal")),
        ("cpu_user_percent", ("user", "nice")),
        ("cpu_system_percent", ("system", "irq", "softirq")),
        ("cpu_iowait_percent", ("iowait",)),
        ("cpu_steal_percent", ("steal",)),
    )
)

# The first line, with at least the first four states, of which the kernel always has all.
_BEGIN = re.compile(r"cpu(?: +[0-9]+){4,} *$", flags=re.MULTILINE)

# CPU time by state since boot, in the kernel's ticks; an old kernel lacks the last states.
Ticks = Sequence[int]


def parse_stat(text: str) -> dict[str, Ticks]:
    """Return the ticks of `cpu`, all CPUs together, and of `cpu0`, `cpu1`, … as far as `text` goes.

    Raises:
        ValueError: this is not a /proc/stat.
    """
    _check(text)
    rows: dict[str, Ticks] = {}
    for line in text.splitlines():
        name, *numbers = line.split()[: 1 + len(_STATES)] or [""]
        if not name.startswith("cpu"):
            break
        rows[name] = [int(number) for number in numbers]
    return rows


def percentages(before: Ticks, after: Ticks) -> dict[str, float | None]:
    """Return the shares of the time between two readings in percent, by column.

    A counter that fell makes those shares None that need it, and so does one that the kernel lacks, except for
    `cpu_percent`, the share that was not idle.
    """
    spent = [late - early if late >= early else None for early, late in zip(before, after, strict=False)]
    all_ticks = sum(ticks for ticks in spent if ticks is not None)
    shares: dict[str, float | None] = {}
    for column, positions in _SHARES:
        known = len(spent)
        parts = [spent[position] for position in positions if position < known]
        is_known = all_ticks and None not in parts and (len(parts) == len(positions) or column == "cpu_percent")
        shares[column] = 100 * sum(filter(None, parts)) / all_ticks if is_known else None
    return shares


class HostCpu(FileSource):
    """CPU use of the whole node, and of each logical CPU if requested.

    psutil.cpu_times() costs half as much again at the agent's full rate, and loses the CPUs' numbers where one is
    offline.
    """

    name = "host_cpu"
    lane = Lane.FAST
    # The kernel counts in ticks of 10 ms: shorter windows hold too few.
    max_rate_hz = 10.0
    file = "stat"

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._per_core = context.per_core
        self._before: str | None = None
        self._before_by_cpu: Mapping[str, Ticks] = {}

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return one row for the node, and one for each CPU; nothing the first time."""
        if self._per_core:
            return self._read_cores()
        after = read_parsed(self._file, _check, first_line=True)
        before, self._before = self._before, after
        return () if before is None else (Reading("host_samples", Computed(_node_shares, before, after)),)

    def _read_cores(self) -> Iterable[Reading]:
        after = read_parsed(self._file, parse_stat)
        before, self._before_by_cpu = self._before_by_cpu, after
        for name in (name for name in after if name in before):
            shares = percentages(before[name], after[name])
            if name == "cpu":
                yield Reading("host_samples", shares)
            else:
                core = int(name.removeprefix("cpu"))
                yield Reading("core_samples", {"core": core, "cpu_percent": shares["cpu_percent"]}, core)


def _check(text: str) -> str:
    """Return `text` if it begins as a /proc/stat does; raise ValueError otherwise."""
    if not _BEGIN.match(text):
        raise ValueError("it does not begin with the CPUs' times")
    return text


def _node_shares(before: str, after: str) -> Mapping[str, Value]:
    return percentages(parse_stat(before)["cpu"], parse_stat(after)["cpu"])
