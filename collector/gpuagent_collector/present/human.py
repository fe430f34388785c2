"""Figures as people read them: three significant digits, and one unit for all figures that are side by side."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import floor, isfinite, log10

_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_JOULES = ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"))
_FLOPS = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP"))
SYMBOLS = {"percent": "%", "watts": "W", "celsius": "°C", "megahertz": "MHz"}
# Less money for a run is written for a thousand of them.
_PER_RUN = re.compile("([A-Z]{3})/run")
_SMALL_MONEY, _PER_THOUSAND = 1e-3, " per 1,000 runs"
# Unit → divisors of its figures with their symbols, the largest first.
_SCALES = {
    "bytes": _BYTES,
    "bytes/s": tuple((divisor, f"{symbol}/s") for divisor, symbol in _BYTES),
    "seconds": _SECONDS,
    "joules": _JOULES,
    "FLOP": _FLOPS,
    "FLOP/s": tuple((divisor, f"{symbol}/s") for divisor, symbol in _FLOPS),
}
_STEPS = (
    (timedelta(days=1), "d"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "min"),
    (timedelta(seconds=1), "s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """A way to write the figures of one row: divided by `divisor`, with `symbol` after them."""

    divisor: float
    symbol: str

    def write(self, value: float) -> str:
        """Return `value` with its unit."""
        return f"{significant(value / self.divisor)} {self.symbol}".rstrip()

    def write_bare(self, value: float) -> str:
        """Return `value` without its unit."""
        return significant(value / self.divisor)

    def write_difference(self, value: float) -> str:
        """Return `value` with its sign and without its unit."""
        return f"{'+' if value >= 0 else ''}{significant(value / self.divisor)}"


def temperature_change(before: float, after: float) -> str:
    """Return a difference in °C: a share of a temperature has no meaning."""
    return f"{after - before:+.1f} °C".replace("-", "−")


def notation(values: Sequence[float], unit: str) -> Notation:
    """Return a notation for values in a metric's unit: the one that fits the largest value."""
    steps = _SCALES.get(unit)
    if currency := _PER_RUN.fullmatch(unit):
        is_small = 0 < max(map(abs, values), default=0.0) < _SMALL_MONEY
        return Notation(divisor=1e-3 if is_small else 1.0, symbol=f"{currency[1]}{_PER_THOUSAND if is_small else ''}")
    if steps is None:
        return Notation(divisor=1.0, symbol=SYMBOLS.get(unit, unit))
    largest = max(map(abs, values), default=0.0)
    plain = next(step for step in steps if step[0] == 1.0)
    divisor, symbol = next((step for step in steps if largest >= step[0]), steps[-1] if largest else plain)
    return Notation(divisor=divisor, symbol=symbol)


def per(amount: str, what: str) -> str:
    """Return an amount for each of something: `0.0194 USD per run`, `0.0857 USD per 1,000 runs`."""
    return amount if amount.endswith(_PER_THOUSAND) else f"{amount} per {what}"


def in_unit(unit: str) -> Callable[[float], str]:
    """Return what writes each value in the notation that fits it."""
    return lambda value: notation([value], unit).write(value)


# Smaller values are written as 2.59e-9.
_MOST_DECIMALS = 8


def significant(value: float, digits: int = 3) -> str:
    """Return `value` with that many significant digits, whole numbers in full: 0.0123, −1.23, 12,345."""
    if not isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    decimals = 0
    if value != round(value):
        rounded = float(f"{value:.{digits - 1}e}")
        decimals = max(0, digits - 1 - floor(log10(abs(rounded))))
    if decimals > _MOST_DECIMALS:
        return re.sub(r"e-0*", "e-", f"{value:.{digits - 1}e}").replace("-", "−", int(value < 0))
    return f"{value:,.{decimals}f}".replace("-", "−")


def ratio(value: float) -> str:
    """Return a ratio with three decimals, and three digits where it is small or large: 0.00012, 0.659, 12.3, 1,234."""
    if 0 < value < 0.0001:
        return re.sub(r"e-0*", "e-", f"{value:.1e}")
    return f"{value:.3f}" if 0.1 <= value < 10 else significant(value)


def change(value: float) -> str:
    """Return a ratio as a change in percent: −34 %, +0.3 %, −99.988 %, or as a multiple from two upwards, and below a
    millionth: 3.1 ×, 2.0e-7 ×."""
    if value >= 2:
        return f"{significant(value, 2)} ×"
    percent = 100 * (value - 1)
    if 0 < value < 1e-6:
        return f"{ratio(value)} ×"
    if 0 < value < 0.01:
        # With two digits of what is left.
        return f"{percent:.{1 - floor(log10(100 * value))}f} %".replace("-", "−")
    if abs(percent) < 0.05:
        return "0 %" if percent == 0 else "0.0 %"
    return f"{percent:+.{0 if abs(percent) >= 10 else 1}f} %".replace("-", "−")


def ago(then: datetime, now: datetime) -> str:
    """Return the time since `then` in its largest unit: 3 min ago; a clock that is ahead gives now."""
    passed = now - then
    return f"{age(passed)} ago" if passed >= _STEPS[-1][0] else "now"


def age(passed: timedelta) -> str:
    """Return a duration in its largest unit: 3 min; less than a second, or a negative one, is 0 s."""
    step, name = next((each for each in _STEPS if passed >= each[0]), _STEPS[-1])
    return f"{max(0, passed // step)} {name}"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: 840 ms, 12.3 s, 4 min 05 s, 2 h 07 min."""
    if 0 < seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds else "0 s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
