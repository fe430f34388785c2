"""Runs one layer again and again, in the shapes of S2.

    python -m gpuagent_workloads run layer --layer conv --device cuda

With the gradients, and with the layer's data left in the cache:

    python -m gpuagent_workloads run layer --layer linear --backward --cache warm
"""

from dataclasses import dataclass

from gpuagent_workloads.parameters import Checked, parameter
from gpuagent_workloads.training.config import DEVICES, PRECISIONS
from gpuagent_workloads.workload import Workload

LAYERS = ("relu", "maxpool", "conv", "linear")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The layer, the device and the number of steps."""

    layer: str = parameter("conv", help="kind of layer", choices=LAYERS)
    backward: bool = parameter(False, help="also compute the gradients of input and weights")
    cache: str = parameter(
        "flushed", help="content of the cache before a step: other data, or its own", choices=("flushed", "warm")
    )
    device: str = parameter("auto", help="where to run; auto: a GPU if there is one", choices=DEVICES)
    precision: str = parameter(
        "default",
        help="torch's own flags, TF32 off or on, or tensors of 16 bits",
        choices=PRECISIONS,
    )
    batch_size: int = parameter(256, help="samples a step", minimum=1)
    steps: int | None = parameter(None, help="measured steps; by default as many as take 10 s", minimum=1)
    warmup: int = parameter(5, help="steps before the measured ones, after one that loads kernels", minimum=0)
    seed: int = parameter(1, help="seed of weights and input", minimum=0, maximum=2**32 - 1)


WORKLOAD = Workload(
    name="layer",
    summary="Runs one layer of a network again and again: its time, FLOPs, bytes and memory.",
    kind="measurement",
    study="S2: memory and power of ReLU, MaxPool, convolution and linear layer, one at a time",
    data="none; the input is random",
    memory="on the device, by default 0.2 GB, linear 0.5 GB, conv 7 GB; up to three times that with --backward",
    config=Config,
    entry="gpuagent_workloads.suite.layer.measure:measure",
)
