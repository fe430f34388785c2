"""Training of the llama workload; its options are `Config` in `__init__.py`.

The optimizer is AdamW with the betas and the weight decay of Llama's training (Touvron et al. 2023), at a constant
learning rate and without clipping. Sequences are windows of the token stream at random places. All ranks together take
the same global batches whatever the strategy; under tensor parallelism each rank works on all of them.
"""

import dataclasses
from contextlib import nullcontext

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from gpuagent_workloads.llama.training import LanguageModel, convert_blocks, count_converted, float8_layers, materialise
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.llama import Config
from gpuagent_workloads.training.device import choose_device
from gpuagent_workloads.training.model import StepFlops, count_flops, make_adamw, palm_flops
from gpuagent_workloads.training.precision import AUTOCAST
from gpuagent_workloads.training.progress import Progress
from gpuagent_workloads.training.ranks import Ranks
from gpuagent_workloads.training.session import Order, Session
from gpuagent_workloads.training.tokens import batches_of, load_tokens

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


LEARNING_RATE, LORA_LEARNING_RATE, BETAS, WEIGHT_DECAY = 3e-4, 2e-4, (0.9, 0.95), 0.1

# Of a synthetic stream, beside a sequence.
SYNTHETIC_TOKENS = 1 << 21


def train(config: Config, reporter: Reporter) -> None:
    """Run the workload.

    Raises:
        MisuseError: the model cannot be divided among the ranks.
        DataError: the data is missing or damaged.
    """
    ranks = Ranks.from_environment()
    config.check_strategy(ranks.size)
    synthetic_tokens = SYNTHETIC_TOKENS + config.context + 1
    tokens = load_tokens(config, config.size.vocabulary, config.context, synthetic_tokens, reporter)
    rate = LEARNING_RATE if config.lora is None else LORA_LEARNING_RATE
    session = Session(
        config,
        reporter,
        lambda: build(config, ranks),
        lambda model, _ranks: make_adamw(model, rate, BETAS, WEIGHT_DECAY),
    )
    starts = len(tokens.train) - config.context
    tensor_parallel = config.strategy == "tp" and ranks.size > 1
    if tensor_parallel:
        whole = dataclasses.replace(config, batch_size=config.batch_size * ranks.size)
        order = Order(starts, whole, Progress(), drawn=True)
    else:
        order = session.order(starts, drawn=True)
    steps_per_epoch = max(1, len(tokens.train) // (config.items_per_step * ranks.size))
    # Also for the backward pass of scores that are divided by tokens of the vocabulary.
    with loss_parallel() if tensor_parallel else nullcontext():
        session.learn(session.forward, steps_per_epoch, batches_of(tokens.train, config.context, order, session.device))
    report_size(session.model, config, reporter)
    session.report(step_flops(config), None if config.lora else palm_step_flops(config))


def build(config: Config, ranks: Ranks) -> LanguageModel:
    """Return the model with new weights on the device of this rank, of which it has its part.

    On a CPU, which `Precision` refuses for runs, FP8 is emulated. Raises MisuseError: the precision is fp8, and torchao
    is missing.
    """
    device = choose_device(config.device)
    narrow = AUTOCAST.get(config.precision)
    model = _on_meta_device(config, recompute=config.recompute, chunk=config.loss_chunk)
    if config.precision == "fp8":
        convert_blocks(model, emulate=device.type == "cpu")
    frozen = narrow
    if config.strategy != "ddp" and ranks.size > 1:
        # Divide a model among all ranks, which have met; it may be on the meta device.
        mesh = init_device_mesh(device.type, (ranks.size,))
        if config.strategy == "tp":
            # Divide each layer, and the scores, as Megatron-LM with sequence parallelism (Korthikanti et al. 2022).
            gathered = PrepareModuleOutput(
                output_layouts=Shard(1), desired_output_layouts=Replicate(), use_local_output=False
            )
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
        else:
            # Arguments stay as they are: the angles of positions need float32.
            policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32, cast_forward_inputs=False)
            for block in model.llama.blocks:
                fully_shard(block, mesh=mesh, mp_policy=policy)
            fully_shard(model, mesh=mesh, mp_policy=policy)
        # FSDP2 wants one type of all weights, and gathers them in 16 bits anyway.
        frozen = None
    materialise(model, device, config.seed, frozen)
    return model


def report_size(model: nn.Module, config: Config, reporter: Reporter) -> None:
    """Report the model's name, the number of frozen weights, and that of layers in FP8."""
    reporter.result("model", config.model)
    frozen = sum(weights.numel() for weights in model.parameters() if not weights.requires_grad)
    if frozen:
        reporter.result("frozen_parameters", frozen)
    if config.precision == "fp8":
        reporter.result("float8_layers", count_converted(model))


def step_flops(config: Config) -> StepFlops:
    """Return the counted floating-point operations of a step of a rank, without what is computed again."""
    model = _on_meta_device(config)
    tokens_BL = torch.empty(config.batch_size, config.context, dtype=torch.long, device="meta")
    float8 = float8_layers(model).values() if config.precision == "fp8" else ()
    return count_flops(lambda: model(tokens_BL, tokens_BL), float8)


def palm_step_flops(config: Config) -> StepFlops:
    """Return the floating-point operations of a step of a rank by PaLM's formula.

    Of the weights, those of an embedding that is only looked up are left out.
    """
    size = config.size
    model = _on_meta_device(config)
    weights = sum(weights.numel() for weights in model.parameters())
    looked_up = 0 if size.tied else size.vocabulary * size.width
    per_token = palm_flops(weights - looked_up, layers=size.layers, width=size.width, context=config.context)
    total, float8 = per_token * config.items_per_step, 0
    if config.precision == "fp8":
        float8 = 6 * sum(layer.weight.numel() for layer in float8_layers(model).values()) * config.items_per_step
    return StepFlops(convolutions=0, products=total - float8, float8=float8)


def _on_meta_device(config: Config, *, recompute: bool = False, chunk: int | None = None) -> LanguageModel:
    with torch.device("meta"):
        return LanguageModel(config.size, config.context, lora=config.lora, recompute=recompute, chunk=chunk)
