"""The layers, and what a step of each computes and moves, counted by formula.

Operations: a multiplication and an addition count as two, a comparison as one; biases are left out, as
`FlopCounterMode` leaves them out. Bytes are a lower bound: everything that must come from memory or go there is counted
once, as if the cache held it from then on.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer with the shapes that a sample has before and behind it."""

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    # Forward, for each value of the output.
    operations_per_output: int
    # How often the backward pass repeats the forward's operations.
    backward_passes: int
    # Trainable parameters.
    weights: int
    # The gradient of the weights is computed from the input, so that a backward pass reads it again. Which values a
    # ReLU or a MaxPool let through can be kept in a few bits, which are not counted.
    gradient_needs_input: bool


# S2's shapes: VGG's first images and its first linear layer.
LAYERS: Mapping[str, Layer] = {
    "relu": Layer(
        build=lambda: nn.ReLU(inplace=True),
        input_shape=(3, 224, 224),
        output_shape=(3, 224, 224),
        operations_per_output=1,
        backward_passes=0,
        weights=0,
        gradient_needs_input=False,
    ),
    "maxpool": Layer(
        build=lambda: nn.MaxPool2d(kernel_size=2, stride=2),
        input_shape=(3, 224, 224),
        output_shape=(3, 112, 112),
        operations_per_output=3,
        backward_passes=0,
        weights=0,
        gradient_needs_input=False,
    ),
    "conv": Layer(
        build=lambda: nn.Conv2d(3, 128, kernel_size=3, padding=1),
        input_shape=(3, 224, 224),
        output_shape=(128, 224, 224),
        operations_per_output=2 * 3 * 3 * 3,
        backward_passes=2,
        weights=128 * 3 * 3 * 3 + 128,
        gradient_needs_input=True,
    ),
    "linear": Layer(
        build=lambda: nn.Linear(512 * 7 * 7, 4096),
        input_shape=(512 * 7 * 7,),
        output_shape=(4096,),
        operations_per_output=2 * 512 * 7 * 7,
        backward_passes=2,
        weights=512 * 7 * 7 * 4096 + 4096,
        gradient_needs_input=True,
    ),
}


def step_flops(layer: Layer, batch_size: int, backward: bool) -> int:
    """Return the operations of a step; the gradients of input and weights each take as many as the forward pass."""
    forward = batch_size * math.prod(layer.output_shape) * layer.operations_per_output
    return forward * (1 + layer.backward_passes * backward)


def step_minimum_bytes(layer: Layer, batch_size: int, backward: bool, value_bytes: int) -> int:
    """Return the least bytes that a step moves between memory and processor.

    Forward: input and weights are read, the output is written. Backward: the output's gradient is read, the input's and
    the weights' are written, and where there are weights, they and the input are read again.

    Args:
        layer: the layer.
        batch_size: samples.
        backward: count the backward pass, too.
        value_bytes: of one value of any of the tensors.
    """
    input_values = batch_size * math.prod(layer.input_shape)
    output_values = batch_size * math.prod(layer.output_shape)
    values = input_values + output_values + layer.weights
    if backward:
        again = input_values + layer.weights if layer.gradient_needs_input else 0
        values += output_values + input_values + layer.weights + again
    return values * value_bytes
