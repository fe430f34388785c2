"""The division of the model among ranks, by torch's own FSDP2 and tensor parallelism."""

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from gpuagent_workloads.llama.training import LanguageModel

# The residual stream has a part of each sequence on each rank. What follows a norm needs all of it, and is gathered
# once for all layers that read it.
_BLOCK = {
    "attention_norm": SequenceParallel(use_local_output=False),
    "queries": ColwiseParallel(),
    "keys": ColwiseParallel(),
    "values": ColwiseParallel(),
    "project": RowwiseParallel(output_layouts=Shard(1)),
    "mlp_norm": SequenceParallel(use_local_output=False),
    "gate": ColwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(output_layouts=Shard(1)),
}


def shard(model: LanguageModel, strategy: str, ranks: int, device: torch.device, narrow: torch.dtype | None) -> None:
    """Divide a model among all ranks, which have met; it may be on the meta device.

    Args:
        model: the model.
        strategy: fsdp2 or tp.
        ranks: their number.
        device: where they train.
        narrow: type of 16 bits of autocast, in which FSDP2 then gathers weights; None: float32.
    """
    mesh = init_device_mesh(device.type, (ranks,))
    if strategy == "tp":
        _divide_layers(model, mesh)
        return
    # Arguments stay as they are: the angles of positions need float32.
    policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in model.llama.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def _divide_layers(model: LanguageModel, mesh: DeviceMesh) -> None:
    """Divide each layer, and the scores, as Megatron-LM with sequence parallelism (Korthikanti et al. 2022)."""
    gathered = PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate(), use_local_output=False)
    for block in model.llama.blocks:
        parallelize_module(block, mesh, _BLOCK)
        parallelize_module(block, mesh, {"attention_norm": gathered, "mlp_norm": gathered})
    outer = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(use_local_output=False),
    }
    if model.llama.output is not None:
        outer["output"] = ColwiseParallel()
    parallelize_module(model.llama, mesh, outer)
    parallelize_module(model.llama, mesh, {"norm": gathered})
