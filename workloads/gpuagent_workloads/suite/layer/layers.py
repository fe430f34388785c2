"""The layers, and the operations and bytes of a step of each, counted by formula.

Operations: a multiplication and an addition count as two, a comparison as one; biases are left out, as
`FlopCounterMode` leaves them out. Bytes are a lower bound: all data that must be read or written is counted once,
as if the cache held it from then on.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer with the shapes of a sample before and behind it."""

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    # Forward, for each value of the output.
    operations_per_output: int
    # Trainable parameters.
    weights: int


# S2's shapes: VGG's first images and its first linear layer.
LAYERS: Mapping[str, Layer] = {
    "relu": Layer(
        build=lambda: nn.ReLU(inplace=True),
        input_shape=(3, 224, 224),
        output_shape=(3, 224, 224),
        operations_per_output=1,
        weights=0,
    ),
    "maxpool": Layer(
        build=lambda: nn.MaxPool2d(kernel_size=2, stride=2),
        input_shape=(3, 224, 224),
        output_shape=(3, 112, 112),
        operations_per_output=3,
        weights=0,
    ),
    "conv": Layer(
        build=lambda: nn.Conv2d(3, 128, kernel_size=3, padding=1),
        input_shape=(3, 224, 224),
        output_shape=(128, 224, 224),
        operations_per_output=2 * 3 * 3 * 3,
        weights=128 * 3 * 3 * 3 + 128,
    ),
    "linear": Layer(
        build=lambda: nn.Linear(512 * 7 * 7, 4096),
        input_shape=(512 * 7 * 7,),
        output_shape=(4096,),
        operations_per_output=2 * 512 * 7 * 7,
        weights=512 * 7 * 7 * 4096 + 4096,
    ),
}


def step_flops(layer: Layer, batch_size: int, backward: bool) -> int:
    """Return the operations of a step; with weights, either gradient takes as many as the forward pass."""
    forward = batch_size * math.prod(layer.output_shape) * layer.operations_per_output
    return forward * 3 if backward and layer.weights else forward


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
        # The gradient of the weights needs the input. That of a ReLU or a MaxPool needs a few bits a value, which are
        # not counted.
        again = input_values + layer.weights if layer.weights else 0
        values += output_values + input_values + layer.weights + again
    return values * value_bytes
