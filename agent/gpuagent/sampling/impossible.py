"""Readings beyond physical limits: dropped where rows are made, and counted by source and column."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuagent.sources.source import Value
from gpuagent_common.ranges import find_impossible

_LOG = logging.getLogger(__name__)

# The interval of the counts of a column that stays impossible.
_REPORT_NANO = 10_000_000_000

# An integer can be too large for a float.
_LARGEST = 10**300


@dataclass(slots=True)
class _Tally:
    from_unix_nano: int
    unix_nano: int
    readings: int = 0
    value: float = 0.0


@dataclass(slots=True)
class ImpossibleReadings:
    """The impossible readings since they were last recorded, by source, table and column."""

    _tallies: dict[tuple[str | None, str, str], _Tally] = field(default_factory=dict)
    _logged: set[tuple[str | None, str, str]] = field(default_factory=set)

    def drop(self, source: str | None, table: str, values: Mapping[str, Value], unix_nano: int) -> Mapping[str, Value]:
        """Return `values` with None in the place of each impossible one, which is counted."""
        found = find_impossible(table, values)
        if not found:
            return values
        for column, value in found:
            tally = self._tallies.setdefault((source, table, column), _Tally(unix_nano, unix_nano))
            tally.readings += 1
            tally.unix_nano, tally.value = unix_nano, float(min(max(value, -_LARGEST), _LARGEST))
            # Log the first of each column, not one a second.
            place = (source, table, column)
            if place not in self._logged:
                self._logged.add(place)
                _LOG.warning("%s: %s is %s, which is impossible; it is left out", source or table, column, value)
        return {**values, **dict.fromkeys(each.column for each in found)}

    def take_rows(self, unix_nano: int | None) -> Iterator[dict[str, Value]]:
        """Yield a row of `impossible_readings` for each column that is due at `unix_nano`; None: for all."""
        for place, tally in list(self._tallies.items()):
            if unix_nano is not None and unix_nano - tally.from_unix_nano < _REPORT_NANO:
                continue
            del self._tallies[place]
            source, table, column = place
            yield {
                "time": tally.unix_nano,
                "from_time": tally.from_unix_nano,
                "source": source,
                "quantity": f"{table}.{column}",
                "readings": tally.readings,
                "value": tally.value,
            }
