"""The bandwidths of collectives as nccl-tests defines them (its doc/PERFORMANCE.md), so that figures can be compared.

A message's size is that of the larger of a rank's two buffers: of an all-gather its output, of a reduce-scatter its
input. The algorithm's bandwidth is size / time. The bus bandwidth is that times a factor of the number of ranks: the
rate at which each link has to work if the algorithm is the best one.
"""


def bus_factor(operation: str, ranks: int) -> float:
    """Return the bus bandwidth's share of the algorithm's, for `ranks` from 2 on.

    Raises:
        KeyError: the operation is unknown.
    """
    others = (ranks - 1) / ranks
    return {
        "all-reduce": 2 * others,
        "all-gather": others,
        "reduce-scatter": others,
        "all-to-all": others,
        "broadcast": 1.0,
        "send-recv": 1.0,
    }[operation]


def bus_bandwidth(operation: str, ranks: int, size_bytes: int, seconds: float) -> float:
    """Return the bytes a second that each link carries."""
    return bus_factor(operation, ranks) * size_bytes / seconds
