"""The result of a foreign program, and checked access to what its file says."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any, TypeVar

from gpuagent_collector.choices import MEASURED_MARK
from gpuagent_collector.metrics.result import SERVING
from gpuagent_common.errors import GpuAgentError

# The workloads under which results are compared: that of gpuagent's own runs, where it has one.
COLLECTIVES = "collectives"

Value = TypeVar("Value")

_MOST_CHARACTERS = 1000

# The store's times are microseconds in 64 bits.
_FIRST, _LAST = datetime(1970, 1, 2), datetime(2200, 1, 1)  # noqa: DTZ001 - as the store holds times


class ResultError(GpuAgentError):
    """A file that is damaged, truncated, or of another program or version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure or a text that the file states, in the store's units.

    Attributes:
        unit: None: a plain number or a text.
        phase: measure: of the measured phase; None: of the whole run.
    """

    name: str
    value: float | str
    unit: str | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with the names of its GPUs, in the order of their ranks; hostname None: it has no name."""

    hostname: str | None
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """One measurement.

    Attributes:
        program, version: the source; version None: the file does not say.
        parameters: by the names of the workload's own, such as `rate`; one that is missing is unknown.
        started_at, ended_at: UTC; None: the file does not say.
        phases: name and UTC of the begin of each.
        reason: why it did not succeed; None: it did.
    """

    program: str
    parameters: Mapping[str, Any]
    figures: Sequence[Figure]
    version: str | None = None
    workload: str = SERVING
    started_at: datetime | None = None
    ended_at: datetime | None = None
    phases: Sequence[tuple[str, datetime]] = ()
    nodes: Sequence[Node] = ()
    reason: str | None = None


@dataclass(slots=True)
class Figures:
    """Figures that are collected; those that are absent are left out."""

    found: list[Figure] = field(default_factory=list)

    def add(self, name: str, value: float | str | None, unit: str | None = None, *, measured: bool = False) -> None:
        """Add a figure of the measured phase or of the whole run; None: the file has none."""
        if value is not None:
            # Arrow refuses a column of fractions with an integer that no double holds, such as a sum of two counts.
            figure = value if isinstance(value, str) else float(value)
            self.found.append(Figure(name=name, value=figure, unit=unit, phase="measure" if measured else None))

    def add_latencies(self, kind: str, milliseconds: Mapping[int, Any]) -> None:
        """Add percentiles of ttft, tpot or e2e. 0 is absent: some programs write it where nothing was measured.

        Raises ResultError: one is no number, or a higher percentile is the lower one.
        """
        check_spread(kind, {f"p{percent}": value for percent, value in milliseconds.items()})
        for percent, value in milliseconds.items():
            if read := number(value, f"{kind} p{percent}"):
                self.add(f"{kind}_p{percent}_seconds", read / 1000, "s")


def number(value: Any, name: str) -> float | None:
    """Return a finite number that is not negative; None for null.

    Raises ResultError: it is something else, such as NaN.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e300:
        raise ResultError(f"{name} is {value!r:.40}, not a number from 0 up")
    return float(value)


_PERCENTILE = re.compile(r"p(\d{1,2})")

_SPREAD = frozenset({"min", "avg", "mean", "max"})

# Means of equal values may differ from them in their last digits.
_ROUNDING = 1 + 1e-6


def check_spread(name: str, statistics: Mapping[str, Any]) -> None:
    """Check that statistics of one metric are possible together: min, percentiles such as p50, avg or mean, and max.

    Raises ResultError: one is no number, a higher percentile is the lower one, or one is outside min and max.
    """
    chosen = (key for key in statistics if key in _SPREAD or _PERCENTILE.fullmatch(key))
    known = {key: read for key in chosen if (read := number(statistics[key], f"{name} {key}"))}
    percentiles = sorted((key for key in known if _PERCENTILE.fullmatch(key)), key=lambda key: int(key[1:]))
    for middle in (percentiles, ["avg"], ["mean"]):
        present = [key for key in ("min", *middle, "max") if key in known]
        for low, high in pairwise(present):
            if known[low] > known[high] * _ROUNDING:
                raise ResultError(
                    f"{name} has {low} {known[low]:g}, more than its {high} {known[high]:g}; it is damaged"
                )


def whole(value: Any, name: str) -> int | None:
    """Return a whole number below 2^53, which a double holds exactly; None for null. Raises ResultError."""
    read = number(value, name)
    if read is not None and (read != int(read) or read >= 2**53):
        raise ResultError(f"{name} is {value!r:.40}, not a whole number below 2^53")
    return None if read is None else int(read)


def text(value: Any, name: str) -> str | None:
    """Return a text; None for null and ''. Raises ResultError."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
        raise ResultError(f"{name} is {value!r:.40}, not a text of at most {_MOST_CHARACTERS:,} characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ResultError(f"{name} is {value!r:.40}, which is no Unicode") from error
    return value


def part(value: Any, *names: str) -> Any:
    """Return what nested objects have under these names; None: one is missing or null.

    Raises ResultError: something on the way is no object.
    """
    for name in names:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ResultError(f"{name} is looked for in {value!r:.40}, which is no object")
        value = value.get(name)
    return value


# Units as programs write them → factor to milliseconds, and to a rate a second or a plain number.
MILLISECONDS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
TOKENS_PER_SECOND = {"tokens/sec": 1.0, "tokens/s": 1.0, "tokens/ms": 1e3}
REQUESTS_PER_SECOND = {"requests/sec": 1.0, "requests/s": 1.0, "requests/min": 1 / 60}
TOKENS = {"tokens": 1.0}
SHARE = {"ratio": 1.0, "%": 0.01}
REQUESTS = {"requests": 1.0, "": 1.0}


def stated(metrics: Mapping[str, Any], name: str, statistic: str, units: Mapping[str, float]) -> float | None:
    """Return a statistic of a metric, by the metric's `unit`; None: it is absent.

    Raises ResultError: it is no number, in none of these units, or impossible beside the metric's other statistics.
    """
    value = number(part(metrics, name, statistic), name)
    if value is None:
        return None
    check_spread(name, metrics[name])
    unit = part(metrics, name, "unit") or ""
    if unit not in units:
        raise ResultError(f"the unit of {name} is {unit!r:.20}; it can be {', '.join(filter(None, units))}")
    return value * units[unit]


def utc(unix_seconds: Any, name: str) -> datetime | None:
    """Return the time in UTC without a zone; None for null. Raises ResultError."""
    seconds = number(unix_seconds, name)
    return None if seconds is None else _checked(lambda: datetime.fromtimestamp(seconds, timezone.utc), name)


def local(written: Any, form: str | None, name: str) -> datetime | None:
    """Return a time by the form of strptime or, for None, of ISO 8601; without a zone it counts as UTC.

    Raises ResultError: it has another form.
    """
    found = text(written, name)
    if found is None:
        return None
    if form is None:
        return _checked(lambda: datetime.fromisoformat(found), name)
    return _checked(lambda: datetime.strptime(found, form).replace(tzinfo=timezone.utc), name)


def _checked(read: Callable[[], datetime], name: str) -> datetime:
    try:
        moment = read()
        moment = moment.astimezone(timezone.utc).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, OverflowError, OSError) as error:
        raise ResultError(f"{name} is no time: {error!s:.80}") from error
    if not _FIRST < moment < _LAST:
        raise ResultError(f"{name} is {moment}, which is no time of a measurement")
    return moment


def before(moment: datetime | None, seconds: float | None) -> datetime | None:
    """Return the time so many seconds before another; None: one is unknown. Raises ResultError."""
    if moment is None or seconds is None:
        return None
    return _checked(lambda: moment - timedelta(seconds=seconds), "the begin")


def constant(mean: float | None, spread: float | None) -> str | None:
    """Return a distribution of lengths as `serve-load` writes it; None: unknown."""
    if mean is None:
        return None
    return f"normal:{mean:g}:{spread:g}" if spread else f"{mean:g}"


def about(mean: float | None) -> str | None:
    """Return a measured mean, marked as one, for a length of requests whose distribution the file does not state."""
    return None if mean is None else f"{MEASURED_MARK}{mean:.6g}"


def about_lengths(means: Mapping[str, float | None]) -> dict[str, str]:
    """Return the known mean lengths of requests by their parameter, for those whose distribution is not stated."""
    return present({name: about(mean) for name, mean in means.items()})


def present(found: Mapping[str, Value | None]) -> dict[str, Value]:
    """Return what is known."""
    return {name: value for name, value in found.items() if value is not None}


def remainder(settings: Any, known: Collection[str], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings that are not known: conditions too, without those that are absent, empty or by default."""
    if not isinstance(settings, Mapping):
        return {}
    usual = defaults or {}
    return {
        str(name): value
        for name, value in settings.items()
        if name not in known and value not in (None, "", [], {}) and (name not in usual or usual[name] != value)
    }


def as_condition(settings: Mapping[str, Any]) -> str | None:
    """Return settings as the value of one parameter, alike in any order; None: there are none."""
    if not settings:
        return None
    written = json.dumps(settings, sort_keys=True, ensure_ascii=False)
    return written if len(written) <= _MOST_CHARACTERS else hashlib.blake2b(written.encode(), digest_size=8).hexdigest()


def lines(content: str) -> Iterator[str]:
    """Yield the lines that are not empty, without carriage returns."""
    yield from (line.rstrip("\r") for line in content.split("\n") if line.strip())
