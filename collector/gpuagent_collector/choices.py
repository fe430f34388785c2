"""Values of options that metrics have; apart from these, because every `--help` imports them."""

from enum import Enum


class Stat(Enum):
    """A statistic of a quantity's readings over the measured phase."""

    MEAN = "mean"
    MEDIAN = "median"
    P95 = "p95"
    MAX = "max"


class PartKind(Enum):
    """The parts of a run that have figures of their own."""

    # One GPU or MIG instance: `part` is its device_id.
    GPU = "gpu"
    # One rank: `part` is its number.
    RANK = "rank"
    # One node: `part` is its node_id.
    NODE = "node"


# The label of an imported run; its value is the program that made it.
IMPORTED = "imported"

# Begins a length of requests that is a measured mean, not stated: `≈1023.4`.
MEASURED_MARK = "≈"
