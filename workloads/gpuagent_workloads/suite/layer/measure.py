"""Timing of a layer step by step, with the operations, bytes and memory of a step.

Operations are counted by formula: a multiplication and an addition count as two, a comparison as one; biases are left
out, as `FlopCounterMode` leaves them out. Bytes are a lower bound: all data that must be read or written is counted
once, as if the cache held it from then on.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.measuring.setup import set_up_device, tf32_set, type_of, why_not
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.layer import Config
from gpuagent_workloads.training.loop import MEASURE_SECONDS, report_steps
from gpuagent_workloads.training.model import StepFlops, report_arithmetic
from gpuagent_workloads.training.timing import Call, synchronize, time_calls
from gpuagent_workloads.workload import parse_size


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


def step_flops(layer: Layer, batch_size: int) -> int:
    """Return the operations of a step."""
    return batch_size * math.prod(layer.output_shape) * layer.operations_per_output


def step_minimum_bytes(layer: Layer, batch_size: int, value_bytes: int) -> int:
    """Return the least bytes that a step moves between memory and processor, given those of any value.

    Input and weights are read, the output is written.
    """
    values = batch_size * (math.prod(layer.input_shape) + math.prod(layer.output_shape)) + layer.weights
    return values * value_bytes


# Taken where the size is unknown: more than the last cache of nearly all processors of today.
UNKNOWN_CACHE_BYTES = 512 << 20

_CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def measure(config: Config, reporter: Reporter) -> None:
    """Run the workload from its device to its figures.

    Raises MisuseError: the device or the precision is not available.
    """
    reporter.phase("setup")
    torch.manual_seed(config.seed)
    device = set_up_device(config.device, reporter)
    refusal = why_not(config.precision, device)
    if refusal:
        raise MisuseError(refusal)
    with tf32_set(config.precision):
        tensor_type = type_of(config.precision)
        layer = build_layer(config)
        reporter.result("layer", config.layer)
        shapes = (str((config.batch_size, *shape)) for shape in (layer.input_shape, layer.output_shape))
        with torch.device("meta"):
            module = layer.build()
        reporter.result("layer_shape", f"{module}: {' to '.join(shapes)}, {layer.weights:,} parameters")
        reporter.result("precision", config.precision)
        reporter.result("tensor_type", str(tensor_type).removeprefix("torch."))
        reporter.result("step_timing", "enqueue" if device.type == "cuda" else "synchronised")
        reporter.result("seed", config.seed)
        if device.type == "cuda":
            reporter.result("tf32_matmul", int(torch.backends.cuda.matmul.allow_tf32))
            reporter.result("tf32_cudnn", int(torch.backends.cudnn.allow_tf32))
        flops = step_flops(layer, config.batch_size)
        # By torch's flags for the arithmetic: a comparison counts as a product.
        convolutions = flops if config.layer == "conv" else 0
        by_kind = StepFlops(convolutions=convolutions, products=flops - convolutions)
        report_arithmetic(by_kind, None if tensor_type == torch.float32 else tensor_type, device, reporter)
        calls = _measure_in_precision(config, device, reporter)
    layer = build_layer(config)
    seconds = sum(call.device_seconds for call in calls) / len(calls)
    flops = step_flops(layer, config.batch_size)
    value_bytes = type_of(config.precision).itemsize
    minimum_bytes = step_minimum_bytes(layer, config.batch_size, value_bytes)
    reporter.result("steps", len(calls), phase="measure")
    reporter.result("throughput", config.batch_size / seconds, unit="items/s", phase="measure")
    reporter.result("parameters", layer.weights)
    reporter.result("model_flops_per_step", flops, unit="FLOP")
    reporter.result("minimum_bytes_per_step", minimum_bytes, unit="bytes")
    reporter.result("model_flops_per_second", flops / seconds, unit="FLOP/s", phase="measure")
    reporter.result("minimum_bytes_per_second", minimum_bytes / seconds, unit="bytes/s", phase="measure")


def _measure_in_precision(config: Config, device: torch.device, reporter: Reporter) -> list[Call]:
    layer, dtype = build_layer(config), type_of(config.precision)
    module = layer.build().to(device, dtype)
    values = torch.randn(config.batch_size, *layer.input_shape, device=device, dtype=dtype)

    @torch.inference_mode()
    def step() -> None:
        # A layer that works in place finds its own output from the second step on: the same bytes, other values.
        module(values)

    reporter.phase("warmup")
    # The first step loads kernels. Its peak memory is the layer's alone: the cache's flush has no buffer yet.
    step()
    synchronize(device)
    reporter.result("time_to_first_step", reporter.elapsed_seconds(), unit="s")
    if device.type == "cuda":
        reporter.result("peak_memory_allocated", torch.cuda.max_memory_allocated(device), unit="bytes")
        reporter.result("peak_memory_reserved", torch.cuda.max_memory_reserved(device), unit="bytes")
    cache_bytes = last_cache_bytes(device)
    reporter.result("cache", "flushed before each step, outside its time")
    if cache_bytes is not None:
        reporter.result("cache_bytes", cache_bytes, unit="bytes")
    flush = torch.empty(2 * (cache_bytes or UNKNOWN_CACHE_BYTES), dtype=torch.uint8, device=device).zero_

    def is_enough(count: int, seconds: float) -> bool:
        return seconds >= MEASURE_SECONDS if config.steps is None else count == config.steps

    warmup = time_calls(step, device, lambda count, _s: count == config.warmup, flush)
    report_steps(warmup, config.batch_size, reporter)
    reporter.phase("measure")
    began_seconds = time.perf_counter()
    calls = time_calls(step, device, is_enough, flush)
    measured_seconds = time.perf_counter() - began_seconds
    report_steps(calls, config.batch_size, reporter)
    reporter.phase("teardown")
    if measured_seconds < MEASURE_SECONDS:
        reporter.result("measure_short", 1, phase="measure")
    return calls


def last_cache_bytes(device: torch.device, cpu_caches: Path = _CPU_CACHES) -> int | None:
    """Return the size of a GPU's L2 cache, or of the largest cache in a folder of sysfs; None if it is unknown."""
    if device.type == "cuda":
        # Older versions of torch lack it.
        size_bytes: int | None = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", None)
        return size_bytes
    sizes = [parse_size(path.read_text(encoding="ascii")) for path in cpu_caches.glob("index*/size")]
    return max((size for size in sizes if size is not None), default=None)
