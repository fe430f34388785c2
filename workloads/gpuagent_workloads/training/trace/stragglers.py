"""How long a rank waited in collectives for the last rank to arrive."""

from collections.abc import Sequence

import torch.distributed as dist

from gpuagent_workloads.training.trace.activity import Activity

# Name of a kernel of NCCL, and how many nanoseconds it ran.
Collective = tuple[str, int]


def collectives(activities: Sequence[Activity]) -> list[Collective]:
    """Return the collectives of one rank, in the order of their begin."""
    return [(activity.name, activity.nano) for activity in activities if activity.is_communication]


def gather(mine: Sequence[Collective] | None) -> list[Sequence[Collective] | None]:
    """Return what every rank handed in, by rank; every rank must call this. None: that rank has no trace."""
    if not dist.is_available() or not dist.is_initialized():
        return [mine]
    of_all: list[Sequence[Collective] | None] = [None] * dist.get_world_size()
    # Between the hosts where the group has a backend for them; torch copies to the GPU and back where it has not.
    dist.all_gather_object(of_all, mine)
    return of_all


def wait_nano(of_all: Sequence[Sequence[Collective] | None], rank: int) -> int | None:
    """Return how long `rank` waited: a collective ends on all ranks at once, so it is shortest on the last to come.

    None: there is one rank only, none had a collective, or the ranks did not trace the same ones.
    """
    present = [one for one in of_all if one]
    sequences = {tuple(name for name, _ in one) for one in present}
    if len(of_all) < 2 or len(present) < len(of_all) or len(sequences) != 1:
        return None
    durations = [[nano for _, nano in one] for one in present]
    shortest: list[int] = [min(nano) for nano in zip(*durations, strict=True)]
    return sum(durations[rank]) - sum(shortest)
