"""What goes into the store, and what became of it."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One numbered message of a session."""

    session_id: int
    node_id: int
    number: int
    # A serialised Records.
    records: bytes


class Verdict(Enum):
    """What became of a message. After each of them but the last it is done with: it need never be sent again."""

    COMMITTED = "committed"
    # It was committed before, and was skipped now.
    DUPLICATE = "duplicate"
    # It can never be stored; a gap was recorded in its place.
    REJECTED = "rejected"
    # Another collector has taken its session over: it is not stored, unless that one has done so.
    DISOWNED = "disowned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a message, and for a rejected one why."""

    verdict: Verdict
    reason: str | None = None


COMMITTED = Outcome(verdict=Verdict.COMMITTED)
DUPLICATE = Outcome(verdict=Verdict.DUPLICATE)
DISOWNED = Outcome(verdict=Verdict.DISOWNED)


def rejected(reason: str) -> Outcome:
    """Return the outcome of a message that can never be stored."""
    return Outcome(verdict=Verdict.REJECTED, reason=reason)
