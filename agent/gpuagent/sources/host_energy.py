"""The power of the processors and of their memory, from the sensors that the kernel shows.

- x86: RAPL's energy counters in /sys/class/powercap; AMD uses Intel's name. `perf stat -e power/energy-pkg/` shows the
  same.
- POWER9: the sensors of the on-chip controller (OCC). Old firmware and kernels show power alone. `sensors` shows the
  same.
- NVIDIA Grace: the firmware's power meters. `sensors` shows the same.
"""

import re
from collections.abc import Iterable, Iterator
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

# Sensors count microjoules and show microwatts.
_MICRO = 1e-6

# The names of what adds up to a column. What they leave out is a part of another, or the whole machine, which contains
# the others: RAPL's core, uncore and psys; the OCC's Vdd, Vdn, System and GPU; Grace's own total and the module's.
_COLUMNS = (
    ("cpu_power_watts", re.compile(r"package-.*|Chip [0-9]+|(CPU|SysIO) Power Socket [0-9]+")),
    ("dram_power_watts", re.compile(r"dram|Chip [0-9]+ Memory")),
)

_NO_SENSORS = "the kernel shows no power of the processors (no RAPL, OCC or power meter), as usual in virtual machines"
# Only root may read RAPL since fine power readings reveal what others compute (CVE-2020-8694).
_ROOT_ONLY = "run the agent as root, or let its user read /sys/class/powercap/*/energy_uj (chmod in a udev rule)"


def column_of(name: str) -> str | None:
    """Return the column to which a sensor of this name counts; None: to none."""
    return next((column for column, names in _COLUMNS if names.fullmatch(name)), None)


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
class _Sensor:
    """An open sensor; without `counter` it shows power, not energy."""

    column: str
    file: OpenFile
    counter: Unwrapped | None

    def read(self) -> float:
        """Return the watts, or the joules since some moment. Raises SourceError."""
        number = read_parsed(self.file, int)
        return (self.counter.follow(number) if self.counter else number) * _MICRO


class HostEnergy:
    """Mean power of the processors and of their memory since the reading before, over all sockets of the node.

    Where the kernel shows no energy, it is the power at the time of the reading.
    """

    name = "host_energy"
    lane = Lane.FAST
    # RAPL's counters restart after 65 kJ at the earliest, which takes minutes.
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        # Open the sensors that count.
        sensors: list[_Sensor] = []
        with ExitStack() as undo:
            for column, path, counter in list(_find_counters(context.sys)) or _find_meters(context.sys):
                file = open_needed(path, _ROOT_ONLY)
                undo.callback(file.close)
                sensors.append(_Sensor(column=column, file=file, counter=counter))
            undo.pop_all()
        if not sensors:
            raise SourceUnavailableError(_NO_SENSORS)
        self._sensors = sensors
        self._rates: Rates[_Sensor] = Rates()

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the power; of counters, nothing the first time."""
        counters = {sensor: sensor.read() for sensor in self._sensors if sensor.counter}
        meters = {sensor: sensor.read() for sensor in self._sensors if not sensor.counter}
        watts = {**self._rates.per_second(counters, now), **meters}
        columns = dict.fromkeys(sensor.column for sensor in watts)
        if columns:
            values = {name: total({each: watts[each] for each in watts if each.column == name}) for name in columns}
            yield Reading(table="host_samples", values=values)

    def close(self) -> None:
        """Close the sensors' files."""
        for sensor in self._sensors:
            sensor.file.close()


def _find_counters(sys: Path) -> Iterator[tuple[str, Path, Unwrapped]]:
    """Yield the column, the file and the counter of each sensor that shows energy."""
    for folder in sorted(sys.glob(_ZONES)):
        if column := column_of(_read_name(folder / "name")):
            highest = parse_number(read_text(folder / "max_energy_range_uj")) or 0
            yield column, folder / "energy_uj", Unwrapped(highest=highest)
    for column, path in _find_sensors(sys, "energy*_label", "input"):
        yield column, path, Unwrapped(highest=0)


def _find_meters(sys: Path) -> Iterator[tuple[str, Path, None]]:
    """Yield the column and the file of each sensor that shows power."""
    # Older kernels have the firmware's meters in the second place.
    places = (("power*_label", "input"), ("power*_oem_info", "average"), ("device/power*_oem_info", "average"))
    for names, value in places:
        for column, path in _find_sensors(sys, names, value):
            yield column, path, None


def _find_sensors(sys: Path, names: str, value: str) -> Iterator[tuple[str, Path]]:
    for file in sorted(sys.glob(f"class/hwmon/hwmon*/{names}")):
        if column := column_of(_read_name(file)):
            yield column, file.with_name(f"{file.name.partition('_')[0]}_{value}")


def _read_name(file: Path) -> str:
    return (read_text(file) or "").strip()
