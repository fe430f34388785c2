"""Retention of samples: options of `collector serve` for a file, of `collector compact` for a lake."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from deploy.kubernetes.problems import MisuseError

_TIME = re.compile(r"[1-9]\d{0,4}[hdw]")
_HOURS = {"h": 1, "d": 24, "w": 168}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Times such as 12h, 7d or 52w; None: for ever.

    Attributes:
        keep_raw: age at which samples are thinned out to one row a second.
        keep_seconds: age at which they are thinned out to one row a minute.
        keep: age at which samples and steps are removed.
    """

    keep_raw: str | None = None
    keep_seconds: str | None = None
    keep: str | None = None

    def __post_init__(self) -> None:
        """Check the times.

        Raises:
            MisuseError: one is malformed, or not longer than the one before it.
        """
        for name, time in self._given().items():
            if not _TIME.fullmatch(time):
                raise MisuseError(f"{name.upper()} takes a number and h, d or w, such as 90d; not {time!r}")
        hours = {name.upper(): int(time[:-1]) * _HOURS[time[-1]] for name, time in self._given().items()}
        for (name, age), (longer, longer_age) in pairwise(hours.items()):
            if age >= longer_age:
                raise MisuseError(f"{name} must be less than {longer}")

    def arguments(self) -> Sequence[str]:
        """Return the command's options."""
        return [f"--{name.replace('_', '-')}={time}" for name, time in self._given().items()]

    def _given(self) -> dict[str, str]:
        return {name: time for name, time in asdict(self).items() if time is not None}
