"""The use of the node's CPUs, from /proc/stat. `top` and `mpstat` show the same."""

from collections.abc import Iterable, Mapping

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.files import FileSource, read_parsed
from gpuagent.sources.support.rates import increase

_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_NOT_BUSY = {"idle", "iowait"}

# CPU time by state since boot, in the kernel's ticks. Guests' time is part of user and nice already.
Ticks = Mapping[str, int]


def parse_stat(text: str, *, per_core: bool = False) -> dict[str, Ticks]:
    """Return the ticks of `cpu`, all CPUs together, and with `per_core` of `cpu0`, `cpu1`, …

    A state that an old kernel lacks is left out.

    Raises:
        ValueError: this is not a /proc/stat.
    """
    rows: dict[str, Ticks] = {}
    # The rest of the file is longer than the CPUs' lines, and need not be split.
    for line in text.splitlines() if per_core else text.split("\n", 1)[:1]:
        name, *numbers = line.split()[: 1 + len(_STATES)] or [""]
        if not name.startswith("cpu"):
            break
        rows[name] = dict(zip(_STATES, map(int, numbers), strict=False))
    if "idle" not in rows.get("cpu", {}):
        raise ValueError("it does not begin with the CPUs' times")
    return rows


def percentages(before: Ticks, after: Ticks) -> dict[str, float | None]:
    """Return the shares of the time between two readings in percent: busy, user, system, iowait, steal.

    A counter that fell makes those shares None that need it.
    """
    spent = {state: increase(before.get(state), ticks) for state, ticks in after.items()}
    all_ticks = sum(ticks for ticks in spent.values() if ticks is not None)

    def share(*states: str) -> float | None:
        parts = [ticks for state in states if (ticks := spent.get(state)) is not None]
        return 100 * sum(parts) / all_ticks if all_ticks and len(parts) == len(states) else None

    return {
        "busy": share(*(state for state in after if state not in _NOT_BUSY)),
        "user": share("user", "nice"),
        "system": share("system", "irq", "softirq"),
        "iowait": share("iowait"),
        "steal": share("steal"),
    }


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
        self._before: Mapping[str, Ticks] = {}

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return one row for the node, and one for each CPU; nothing the first time."""
        after = read_parsed(self._file, lambda text: parse_stat(text, per_core=self._per_core))
        before, self._before = self._before, after
        return [_reading(name, percentages(before[name], ticks)) for name, ticks in after.items() if name in before]


def _reading(name: str, percent: Mapping[str, float | None]) -> Reading:
    if name != "cpu":
        core = int(name.removeprefix("cpu"))
        return Reading(table="core_samples", key=core, values={"core": core, "cpu_percent": percent["busy"]})
    values = {
        "cpu_percent": percent["busy"],
        "cpu_user_percent": percent["user"],
        "cpu_system_percent": percent["system"],
        "cpu_iowait_percent": percent["iowait"],
        "cpu_steal_percent": percent["steal"],
    }
    return Reading(table="host_samples", values=values)
