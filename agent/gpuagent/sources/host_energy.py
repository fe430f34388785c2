"""The power of the processors, from RAPL's energy counters in /sys/class/powercap; AMD uses Intel's name.

`perf stat -e power/energy-pkg/` shows the same.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.errors import SourceUnavailableError
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.files import OpenFile, open_needed, parse_number, read_parsed, read_text
from gpuagent.sources.support.rates import Rates, total

# Not intel-rapl-mmio:*, another way to the same counters.
_ZONES = "class/powercap/intel-rapl:*"

_JOULES_PER_MICROJOULE = 1e-6

_NO_RAPL = "the kernel has no RAPL energy counters (/sys/class/powercap), as usual in virtual machines"
# Only root may read them since fine power readings reveal what others compute (CVE-2020-8694).
_ROOT_ONLY = "run the agent as root, or let its user read /sys/class/powercap/*/energy_uj (chmod in a udev rule)"


def column_of(zone: str) -> str | None:
    """Return the column to which a RAPL zone of this name counts.

    None: it is a part of another (core, uncore), or the whole machine (psys), which contains the others.
    """
    if zone.startswith("package-"):
        return "cpu_power_watts"
    return "dram_power_watts" if zone == "dram" else None


@dataclass(slots=True, kw_only=True)
class Unwrapped:
    """A counter that restarts at 0 after `highest`, turned into one that keeps rising.

    Attributes:
        highest: in the counter's own unit; 0: unknown, and then it falls where it restarts.
    """

    highest: int
    passed: int = 0
    last: int = 0

    def follow(self, count: int) -> int:
        """Return the total count; between two calls the counter must not pass its earlier value again.

        A fall by less than half of the range is no restart after its end. The counter was reset: the
        total falls, and the power between the two readings is unknown.
        """
        if count < self.last and self.last - count >= self.highest / 2:
            self.passed += self.highest
        self.last = count
        return self.passed + count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Zone:
    column: str
    file: OpenFile
    counter: Unwrapped

    def read_joules(self) -> float:
        """Return the energy since some moment. Raises SourceError."""
        return self.counter.follow(read_parsed(self.file, int)) * _JOULES_PER_MICROJOULE


class HostEnergy:
    """Mean power of the processors and of their memory since the reading before, over all sockets of the node."""

    name = "host_energy"
    lane = Lane.FAST
    # The counters restart after 65 kJ at the earliest, which takes minutes.
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        self._zones = _open_zones(context.sys)
        self._rates: Rates[_Zone] = Rates()

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the mean power since the last call; nothing the first time."""
        watts = self._rates.per_second({zone: zone.read_joules() for zone in self._zones}, now)
        columns = dict.fromkeys(zone.column for zone in watts)
        if columns:
            values = {name: total({zone: watts[zone] for zone in watts if zone.column == name}) for name in columns}
            yield Reading(table="host_samples", values=values)

    def close(self) -> None:
        """Close the zones' files."""
        for zone in self._zones:
            zone.file.close()


def _open_zones(sys: Path) -> list[_Zone]:
    """Open the zones that count.

    Raises:
        SourceUnavailableError: no zone exists, or one cannot be read.
    """
    zones: list[_Zone] = []
    with ExitStack() as undo:
        for folder in sorted(sys.glob(_ZONES)):
            column = column_of((read_text(folder / "name") or "").strip())
            if column is not None:
                highest = parse_number(read_text(folder / "max_energy_range_uj")) or 0
                file = open_needed(folder / "energy_uj", _ROOT_ONLY)
                undo.callback(file.close)
                zones.append(_Zone(column=column, file=file, counter=Unwrapped(highest=highest)))
        undo.pop_all()
    if not zones:
        raise SourceUnavailableError(_NO_RAPL)
    return zones
