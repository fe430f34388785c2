"""What a token allows."""

from enum import Enum


class Scope(Enum):
    """Who somebody is to the collector."""

    # Writes what its own node measures, and nothing else.
    AGENT = "agent"
    # Asks: SQL, pages, metrics.
    VIEWER = "viewer"
    # Everything: asks, launches, cancels, and writes for any node. The owner's token file is one.
    OPERATOR = "operator"
