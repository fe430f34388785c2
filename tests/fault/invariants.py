"""Compares what was made with what the store holds: everything durable once, what had to be given up told as a gap.

Generators number their rows. A number is durable when the spool has returned from writing it, and only that is
promised: what a killed generator had in memory may be missing, and may be stored, but never twice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_GIVEN_UP = "spool_full"
_DAMAGED = ("spool_damaged", "rejected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """What one flush made durable: a message of samples, and a record with the number of the last of them."""

    numbers: range
    from_unix_nano: int
    to_unix_nano: int

    def line(self) -> str:
        """Return the flush as a line of a journal."""
        return f"{self.numbers.start} {self.numbers.stop} {self.from_unix_nano} {self.to_unix_nano}\n"

    @property
    def record(self) -> int:
        return self.numbers[-1]


def read_journal(file: Path) -> list[Flush]:
    """Return the flushes that a generator has noted; a last line that it was killed in is left out."""
    lines = (line.split() for line in file.read_text().splitlines(keepends=True) if line.endswith("\n"))
    return [
        Flush(numbers=range(int(start), int(stop)), from_unix_nano=int(first), to_unix_nano=int(last))
        for start, stop, first, last in lines
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A row of `gaps` that tells of messages that are gone; `messages` is None where that could not be told."""

    reason: str
    from_unix_nano: int
    to_unix_nano: int
    messages: int | None

    def tells_of(self, flush: Flush) -> bool:
        if self.reason in _DAMAGED:
            # A flush is noted a moment after its messages have got their times.
            return flush.from_unix_nano <= self.to_unix_nano
        return self.from_unix_nano <= flush.to_unix_nano and flush.from_unix_nano <= self.to_unix_nano


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    samples: Mapping[int, int]
    records: Mapping[int, int]
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is wrong; nothing of it should be, and `given_up` only where a spool was full or damaged."""

    # Durable numbers that the store has not, and that no gap tells of.
    lost: frozenset[int] = field(default_factory=frozenset)
    duplicated: frozenset[int] = field(default_factory=frozenset)
    # Messages that are missing where a gap says so.
    given_up: int = 0
    # Messages that gaps say are gone; None: a gap could not tell how many. It may be more than are missing: what was
    # given up while its acknowledgement was on its way is stored all the same.
    told: int | None = 0

    def __str__(self) -> str:
        return (
            f"{len(self.lost)} lost {sorted(self.lost)[:5]}, {len(self.duplicated)} duplicated "
            f"{sorted(self.duplicated)[:5]}, {self.given_up} given up and {self.told} told"
        )

    @property
    def are_none(self) -> bool:
        """Whether everything is as it should be."""
        return not self.lost and not self.duplicated and (self.told is None or self.told >= self.given_up)


def compare(made: Iterable[Flush], stored: Stored) -> Findings:
    """Return what of `made` is lost, and what is stored more than once, of what was made or not."""
    lost: set[int] = set()
    given_up = 0
    for flush in made:
        missing = {number for number in flush.numbers if not stored.samples.get(number)}
        told = [gap for gap in stored.gaps if gap.tells_of(flush)]
        if not stored.records.get(flush.record) and all(gap.reason not in _DAMAGED for gap in told):
            lost.add(flush.record)  # a full spool never drops records
        if missing and told:
            given_up += 1
        else:
            lost |= missing
    duplicated = {number for table in (stored.samples, stored.records) for number, times in table.items() if times > 1}
    return Findings(lost=frozenset(lost), duplicated=frozenset(duplicated), given_up=given_up, told=_told(stored.gaps))


def count(numbers: Iterable[int | None]) -> Mapping[int, int]:
    return Counter(number for number in numbers if number is not None)


def _told(gaps: Iterable[Gap]) -> int | None:
    counts = [gap.messages for gap in gaps if gap.reason in (_GIVEN_UP, *_DAMAGED)]
    return None if None in counts else sum(each or 0 for each in counts)
