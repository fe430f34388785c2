"""What a token allows."""

from enum import Enum


class Scope(Enum):
    """Who somebody is to the collector."""

    AGENT = "agent"
    """Writes what its own node measures, and nothing else."""
    VIEWER = "viewer"
    """Asks: SQL, pages, metrics."""
    OPERATOR = "operator"
    """Everything: asks, launches, cancels, and writes for any node. The owner's token file is one."""
