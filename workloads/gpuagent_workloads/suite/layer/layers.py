"""The layers, and the operations and bytes of a step of each, counted by formula.

Operations: a multiplication and an addition count as two, a comparison as one; biases are left out, as
`FlopCounterMode` leaves them out. Bytes are a lower bound: all data that must be read or written is counted once,
as if the cache held it from then on.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from gpuagent_workloads.suite.layer import Config
from gpuagent_workloads.training.outline import LayerRow, outline


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


def build_layer(config: Config) -> Layer:
    """Return the layer that `config` describes."""
    shape = config.shape
    inputs = shape["inputs"]
    if config.layer == "linear":
        outputs = shape["outputs"]
        return Layer(
            build=lambda: nn.Linear(inputs, outputs),
            input_shape=(inputs,),
            output_shape=(outputs,),
            operations_per_output=2 * inputs,
            weights=outputs * inputs + outputs,
        )
    image = (inputs, shape["side"], shape["side"])
    if config.layer == "relu":
        return Layer(
            build=lambda: nn.ReLU(inplace=True),
            input_shape=image,
            output_shape=image,
            operations_per_output=1,
            weights=0,
        )
    kernel, padding, stride = shape["kernel"], shape["padding"], shape["stride"]
    side = (shape["side"] + 2 * padding - kernel) // stride + 1
    if config.layer == "maxpool":
        return Layer(
            build=lambda: nn.MaxPool2d(kernel, stride=stride, padding=padding),
            input_shape=image,
            output_shape=(inputs, side, side),
            operations_per_output=kernel**2 - 1,
            weights=0,
        )
    outputs = shape["outputs"]
    return Layer(
        build=lambda: nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding),
        input_shape=image,
        output_shape=(outputs, side, side),
        operations_per_output=2 * inputs * kernel**2,
        weights=outputs * inputs * kernel**2 + outputs,
    )


def outline_layer(config: Config) -> list[LayerRow]:
    """Return the layer as the only one of a network."""
    layer = build_layer(config)
    with torch.device("meta"):
        module = layer.build()
        values = torch.empty(config.batch_size, *layer.input_shape)
    return outline({config.layer: module}, lambda: module(values))


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
