"""The stack of layers, placed on its devices, and a step of its training."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from gpuagent_workloads.suite.memory_limit.trial import Shape, Stage


def build_stages(stages: Sequence[Stage], shape: Shape) -> list[nn.Sequential]:
    """Return a module for each stage, on its device."""
    return [_build_stage(stage, shape).to(stage.device) for stage in stages]


def make_step(stages: Sequence[Stage], shape: Shape) -> Callable[[], None]:
    """Return a step: forward through all stages, then backward.

    Without an optimizer: what is held are weights, their gradients, and above all the activations, which the backward
    pass needs.
    """
    modules = build_stages(stages, shape)
    values = torch.randn(shape.batch_size, shape.channels, shape.side, shape.side, device=stages[0].device)

    def step() -> None:
        output = values
        for stage, module in zip(stages, modules, strict=True):
            output = module(output.to(stage.device))
        output.sum().backward()
        for module in modules:
            module.zero_grad()

    return step


def _build_stage(stage: Stage, shape: Shape) -> nn.Sequential:
    convolutions: list[nn.Module] = [
        nn.Conv2d(shape.channels, shape.channels, kernel_size=3, padding=1) for _ in range(stage.conv)
    ]
    linear_layers: list[nn.Module] = [nn.Linear(shape.side, shape.side) for _ in range(stage.fc)]
    stack = nn.Sequential(*convolutions, *linear_layers)
    for weights in stack.parameters():
        if weights.dim() > 1:
            # Keeps the values' size through any number of layers; torch's own start would shrink them until they are
            # denormal, which a CPU computes slowly.
            nn.init.kaiming_normal_(weights, nonlinearity="linear")
    return stack
