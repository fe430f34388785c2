"""The scopes of tokens."""

from enum import Enum


class Scope(Enum):
    """The set of actions that a token allows."""

    # Writes the data of its own node, and nothing else.
    AGENT = "agent"
    # Reads: SQL, pages, metrics.
    VIEWER = "viewer"
    # Everything: reads, launches, cancels, and writes for any node. The owner's token has it.
    OPERATOR = "operator"
