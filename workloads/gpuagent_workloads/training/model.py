"""Figures of a model that are the same on every device."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gpuagent_workloads.report import Reporter


def report_model(model: nn.Module, forward_loss: Callable[[], torch.Tensor], reporter: Reporter) -> None:
    """Report the parameters of `model`, and the model FLOPs of a step.

    Args:
        model: the network.
        forward_loss: computes the loss of one step. On the meta device it computes nothing, which is enough here.
        reporter: where to.
    """
    reporter.result("parameters", sum(weights.numel() for weights in model.parameters() if weights.requires_grad))
    reporter.result("model_flops_per_step", step_flops(forward_loss), unit="FLOP")


def step_flops(forward_loss: Callable[[], torch.Tensor]) -> int:
    """Return the floating-point operations of matrix products and convolutions, forward and backward.

    A multiplication and an addition count as two. What the optimizer does is not counted. This is what the model asks
    for; what a device executes can differ, as with Winograd's convolutions.
    """
    with FlopCounterMode(display=False) as counter:
        forward_loss().backward()
    return int(counter.get_total_flops())
