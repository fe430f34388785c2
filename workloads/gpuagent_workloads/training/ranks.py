"""The ranks that train one model together, each on its share of every batch (data parallelism).

torchrun starts them, ours (`launch.py`) or the user's, or anything else that sets RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT and, with several GPUs on a node, LOCAL_RANK.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import number_in

if TYPE_CHECKING:
    from typing import TypeGuard

    from torch.distributed.tensor import DTensor

# The longest wait of ranks for one another: the first step of one may compile for minutes.
TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among those that train together. Without arguments: the only one."""

    # Number of this process, from 0.
    rank: int = 0
    # Their number on all nodes.
    size: int = 1
    # Their number on this node.
    local_size: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Ranks":
        """Return the ranks that torchrun's variables describe.

        Raises MisuseError: a variable is missing or is not a number.
        """
        size = number_in(environment, "WORLD_SIZE", 1)
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
        if size > 1 and missing:
            raise MisuseError(f"WORLD_SIZE is {size} and {missing[0]} is not set: start through torchrun, or set both")
        return cls(
            rank=number_in(environment, "RANK", 0),
            size=max(1, size),
            local_size=max(1, number_in(environment, "LOCAL_WORLD_SIZE", 1)),
        )

    def join(self, device: torch.device) -> None:
        """Meet the other ranks, if there are any; all must do this. Raises WorkloadError where they did not meet."""
        if self.size == 1:
            return
        # Agreed values are in the host's memory and go over gloo, so that they never wait for the GPU.
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend, timeout=TIMEOUT)
        except dist.DistError as error:
            address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            raise WorkloadError(f"the {self.size} ranks did not meet at {address}: {error}") from error

    def agree(self, value: float) -> float:
        """Return rank 0's `value` on all ranks. All must call it; it costs a message between the hosts."""
        if self.size == 1:
            return value
        agreed = torch.tensor(value, dtype=torch.float64)
        dist.broadcast(agreed, src=0)
        return agreed.item()

    def leave(self) -> None:
        """Part from the other ranks. All must do this, unless one has failed."""
        if self.size > 1:
            dist.destroy_process_group()


def parallel(model: nn.Module, ranks: Ranks, device: torch.device) -> nn.Module:
    """Return the parallel form of the model, in which all ranks get the mean of their gradients.

    With one rank, or of a model that is divided among the ranks, that is `model` itself. All ranks start with rank 0's
    weights, and must build the same parallel models in the same order. `model` is unchanged: test and save it, and use
    it where its gradients are unwanted, like those of a discriminator while its generator learns. Compile the parallel
    form.
    """
    if ranks.size == 1 or any(is_divided(weights) for weights in model.parameters()):
        return model
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)


def is_divided(tensor: torch.Tensor) -> "TypeGuard[DTensor]":
    """Return whether a tensor is divided among ranks. To import its class takes most of a second."""
    return hasattr(tensor, "to_local")


class AgreedEnd:
    """The end of a phase of given length on several ranks: after the same step, by rank 0's clock.

    Ranks exchange a message only after steps 1, 2, 4, 8, …, and a few times near the end, which rank 0 foresees from
    the steps so far. In between they wait for one another only in the steps' own collectives.
    """

    def __init__(self, ranks: Ranks, least_seconds: float) -> None:
        self._ranks, self._least_seconds = ranks, least_seconds
        self._agree_at = 1

    def __call__(self, steps: int, seconds: float) -> bool:
        """Return whether `steps` that took `seconds` are enough."""
        if steps < self._agree_at:
            return False
        if seconds >= self._least_seconds:
            more = 0
        elif seconds <= 0:
            more = steps
        else:
            more = max(1, min(steps, math.floor(steps * (self._least_seconds - seconds) / seconds)))
        more = int(self._ranks.agree(more))
        self._agree_at = steps + more
        return more == 0
