"""Values of options that metrics have; apart from these, because every `--help` imports them."""

from collections.abc import Mapping, Sequence
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

# Figures that are of no metric, by their names on the command line → the parts they have, why no others, and where
# those are.
WHOLE: Mapping[str, tuple[Sequence[PartKind], str, str]] = {
    "roofline": ((PartKind.GPU, PartKind.RANK), "roofs are of one device", "try --each gpu, --each rank"),
    "scaling": (
        (),
        "a speed-up is of whole runs",
        "`plot step_seconds --each rank --by parameter:ranks` has each rank",
    ),
    "frontier": ((), "energy and cost are of whole runs", "`plot gpu_power_watts --each gpu` has each GPU"),
    "serving": ((), "latencies are of whole runs", "`plot gpu_power_watts --each gpu` has each GPU"),
    "because": ((), "its parts are of whole runs", "leave --each out"),
    "split": ((PartKind.GPU,), "a stack is split over GPUs of one rank", "try --each gpu"),
    "collectives": ((), "bandwidths are of all ranks together", "`show` has each pair of ranks"),
}
