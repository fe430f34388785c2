"""Messages of agents, and the outcome of each."""

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
    """The fate of a message. After each but the last, the agent need never send it again."""

    COMMITTED = "committed"
    # Committed before, and skipped now.
    DUPLICATE = "duplicate"
    # It can never be stored; a gap was recorded in its place.
    REJECTED = "rejected"
    # Another collector has taken its session over, and stores the message if it has it.
    DISOWNED = "disowned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The verdict on a message, with a reason if it is rejected."""

    verdict: Verdict
    reason: str | None = None


COMMITTED = Outcome(verdict=Verdict.COMMITTED)
DUPLICATE = Outcome(verdict=Verdict.DUPLICATE)
DISOWNED = Outcome(verdict=Verdict.DISOWNED)
