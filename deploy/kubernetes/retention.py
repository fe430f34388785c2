"""How long samples are kept: options of `collector serve` on a file, and of `collector compact` on a lake."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from deploy.kubernetes.problems import MisuseError

_TIME = re.compile(r"[1-9]\d{0,4}[hdw]")
_HOURS = {"h": 1, "d": 24, "w": 168}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Times as 12h, 7d or 52w; None: for ever.

    Attributes:
        keep_raw: samples as they were read; older ones become one row a second.
        keep_seconds: rows of a second; older ones become one a minute.
        keep: samples in any form, and steps.
    """

    keep_raw: str | None = None
    keep_seconds: str | None = None
    keep: str | None = None

    def __post_init__(self) -> None:
        """Check what was said.

        Raises:
            MisuseError: it is no time, or something is to be kept for longer than what it would become.
        """
        for name, time in self._given().items():
            if not _TIME.fullmatch(time):
                raise MisuseError(f"{name.upper()} takes a number and h, d or w, as 90d, not {time!r}")
        hours = {name.upper(): int(time[:-1]) * _HOURS[time[-1]] for name, time in self._given().items()}
        for (name, age), (longer, longer_age) in pairwise(hours.items()):
            if age >= longer_age:
                raise MisuseError(f"{name} must be less than {longer}")

    def arguments(self) -> Sequence[str]:
        """Return the command's options."""
        return [f"--{name.replace('_', '-')}={time}" for name, time in self._given().items()]

    def _given(self) -> dict[str, str]:
        return {name: time for name, time in asdict(self).items() if time is not None}
