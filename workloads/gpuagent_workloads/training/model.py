"""Figures of a model that are the same on every device, such as FLOPs, and the Transformers' optimizer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.flop_counter import FlopCounterMode

from gpuagent_workloads.report import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFlops:
    """Floating-point operations of a step, forward and backward; a multiplication and an addition count as two.

    The kinds are separate since their arithmetic is chosen separately: by torch (`Precision`), or by layer for FP8.
    """

    # Computed by cuDNN on a GPU.
    convolutions: int
    # Of matrix products, except those in FP8.
    products: int
    # Of matrix products in FP8.
    float8: int = 0

    @property
    def total(self) -> int:
        """Of all kinds."""
        return self.convolutions + self.products + self.float8


def report_counts(model: nn.Module, flops: StepFlops, reporter: Reporter) -> None:
    """Report the parameters of `model`, and the model FLOPs of a step."""
    reporter.result("parameters", sum(weights.numel() for weights in model.parameters() if weights.requires_grad))
    reporter.result("model_flops_per_step", flops.total, unit="FLOP")


def report_minimum_bytes(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Iterable[torch.Tensor], reporter: Reporter
) -> None:
    """Report the `minimum_bytes` of a step that updates one network once."""
    reporter.result("minimum_bytes_per_step", minimum_bytes(model, optimizer, batch), unit="bytes")


def minimum_bytes(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Iterable[torch.Tensor]) -> int:
    """Return a lower bound of the bytes that an update moves to and from the device's memory.

    Weights, buffers (as of batch normalisation) and the optimizer's state are read and written once, and the batch is
    read once. Gradients and activations are left out: how often they move depends on caches and fusion. The bound
    holds where weights do not stay in a cache from one step to the next.

    Args:
        optimizer: after its first step, so that it has its state.
        batch: the tensors of a batch, as they arrive on the device.
    """
    kept = [*model.parameters(), *model.buffers()]
    for weights, state in optimizer.state.items():
        # Counts of steps may be kept on the host.
        kept += (v for v in state.values() if isinstance(v, torch.Tensor) and v.device == weights.device)
    # Of what is divided among ranks, this one's part.
    parts = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in kept)
    return 2 * sum(tensor.nbytes for tensor in parts) + sum(tensor.nbytes for tensor in batch)


def palm_flops(weights: int, *, layers: int, width: int, context: int) -> int:
    """Return the floating-point operations of a token by PaLM's formula, 6 N + 12 L H Q T.

    It is that of Chowdhery et al. 2022, appendix B: forward and backward, attention to all tokens of the sequence.

    Args:
        weights: parameters that multiply (N).
        layers: their number (L).
        width: features of all attention heads together (H Q).
        context: tokens of a sequence (T).
    """
    return 6 * weights + 12 * layers * width * context


def count_flops(forward_loss: Callable[[], torch.Tensor], float8: Iterable[nn.Linear] = ()) -> StepFlops:
    """Return the floating-point operations of matrix products and convolutions, forward and backward.

    The optimizer's are not counted. A device may execute others, as with Winograd's convolutions.

    Args:
        forward_loss: returns the loss of a step.
        float8: layers whose products are in FP8 in training; here they must still be torch's own.
    """
    float8_flops = 0

    def add(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal float8_flops
        (weight,), (values,) = layer.parameters(), inputs
        # One product forward, and one for each gradient.
        products = 1 + values.requires_grad + weight.requires_grad
        float8_flops += products * 2 * output.numel() * values.shape[-1]

    hooks = [layer.register_forward_hook(add) for layer in float8]
    with FlopCounterMode(display=False) as counter:
        forward_loss().backward()
    for hook in hooks:
        hook.remove()
    flops = counter.get_flop_counts().get("Global", {})
    convolutions = sum(count for operation, count in flops.items() if "convolution" in str(operation))
    products = int(counter.get_total_flops() - convolutions) - float8_flops
    return StepFlops(convolutions=int(convolutions), products=products, float8=float8_flops)


def count_network_flops(build: Callable[[], nn.Module], *shape: int) -> StepFlops:
    """Return the same of a network's step on a batch of that shape; a loss has no matrix products."""
    with torch.device("meta"):
        model, batch = build(), torch.empty(shape)
    return count_flops(lambda: model(batch).sum())


def make_adamw(
    model: nn.Module, learning_rate: float, betas: tuple[float, float], decay: float
) -> torch.optim.Optimizer:
    """Return AdamW of the weights that learn: matrices decay, and nothing else. On a GPU it is one kernel."""
    parameters = [weights for weights in model.parameters() if weights.requires_grad]
    groups = [
        {"params": [weights for weights in parameters if weights.dim() >= 2], "weight_decay": decay},
        {"params": [weights for weights in parameters if weights.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=parameters[0].is_cuda)
