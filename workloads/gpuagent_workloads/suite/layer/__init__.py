"""Runs one layer again and again, in the shapes of the study S2 (docs/studies.md)."""

from dataclasses import dataclass

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.training.config import DEVICES, PRECISIONS
from gpuagent_workloads.workload import Checked, Workload, parameter

LAYERS = ("relu", "maxpool", "conv", "linear")

# The shape of each layer in S2; a linear layer has no side, a ReLU no kernel.
SHAPES = {
    "relu": {"inputs": 3, "side": 224},
    "maxpool": {"inputs": 3, "side": 224, "kernel": 2, "padding": 0, "stride": 2},
    "conv": {"inputs": 3, "side": 224, "outputs": 128, "kernel": 3, "padding": 1, "stride": 1},
    "linear": {"inputs": 512 * 7 * 7, "outputs": 4096},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The layer, the device and the number of steps."""

    layer: str = parameter("conv", help="kind of layer", choices=LAYERS)
    inputs: int | None = parameter(None, help="channels or, of linear, features of a sample", minimum=1)
    outputs: int | None = parameter(None, help="of conv and linear: channels or features that come out", minimum=1)
    side: int | None = parameter(None, help="height and width of a sample, except of linear", minimum=1)
    kernel: int | None = parameter(None, help="of conv and maxpool: side of the kernel", minimum=1)
    padding: int | None = parameter(None, help="of conv and maxpool: zeros around a sample", minimum=0)
    stride: int | None = parameter(None, help="of conv and maxpool: distance of the kernel's places", minimum=1)
    device: str = parameter("auto", help="where to run; auto: a GPU if there is one", choices=DEVICES)
    precision: str = parameter(
        "default", help="torch's own flags, TF32 off or on, or tensors of 16 bits", choices=PRECISIONS
    )
    batch_size: int = parameter(256, help="samples a step", minimum=1)
    steps: int | None = parameter(None, help="measured steps; by default as many as take 10 s", minimum=1)
    warmup: int = parameter(5, help="steps before the measured ones, after one that loads kernels", minimum=0)
    seed: int = parameter(1, help="seed of weights and input", minimum=0, maximum=2**32 - 1)

    def check_together(self) -> None:
        """Check the shape."""
        shape = self.shape
        for name in ("inputs", "outputs", "side", "kernel", "padding", "stride"):
            if getattr(self, name) is not None and name not in shape:
                raise MisuseError(f"--{name} has no meaning for --layer {self.layer}: omit it")
        if "kernel" in shape and shape["kernel"] > shape["side"] + 2 * shape["padding"]:
            raise MisuseError(f"--kernel {shape['kernel']} is larger than the sample with its padding")
        if self.layer == "maxpool" and 2 * shape["padding"] > shape["kernel"]:
            raise MisuseError(f"--padding {shape['padding']} is more than half of --kernel {shape['kernel']}")

    @property
    def shape(self) -> dict[str, int]:
        """The shape as given or, where it is not, as in S2."""
        return {
            name: usual if getattr(self, name) is None else getattr(self, name)
            for name, usual in SHAPES[self.layer].items()
        }


WORKLOAD = Workload(
    name="layer",
    summary="Runs one layer of a network again and again: its time, FLOPs, bytes and memory.",
    kind="measurement",
    study="S2: memory and power of ReLU, MaxPool, convolution and linear layer, one at a time",
    data="none; the input is random",
    memory="on the device, by default 0.2 GB, linear 0.5 GB, conv 7 GB",
    config=Config,
    entry="gpuagent_workloads.suite.layer.measure:measure",
)
