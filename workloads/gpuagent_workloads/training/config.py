"""The parameters that all training workloads share."""

from dataclasses import dataclass
from typing import ClassVar

from gpuagent_workloads.errors import MisuseError
from gpuagent_workloads.parameters import check, parameter

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("default", "fp32", "tf32", "fp16", "bf16")

SYNTHETIC = "synthetic"
"""The value of `data` that asks for data made up from the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """How to train. A workload's Config derives from it, and gives batch_size and data its own defaults and help."""

    item: ClassVar[str] = "items"
    """What throughput counts, in the plural."""

    device: str = parameter("auto", help="where to train; auto: on a GPU if there is one", choices=DEVICES)
    precision: str = parameter(
        "default",
        help="arithmetic: torch's own flags, TF32 off, TF32 on, or automatic mixed precision",
        choices=PRECISIONS,
    )
    batch_size: int = parameter(64, help="samples a step", minimum=1)
    steps: int | None = parameter(None, help="measured steps; if not given, as many as take 10 s", minimum=1)
    epochs: int | None = parameter(None, help="measured passes over the data, instead of --steps", minimum=1)
    warmup: int = parameter(20, help="steps before those that are measured", minimum=1)
    seed: int = parameter(1, help="of weights, order and synthetic data", minimum=0, maximum=2**32 - 1)
    data: str = parameter(SYNTHETIC, help="directory with the data, or synthetic", path=True)
    threads: int | None = parameter(None, help="CPU threads; torch's choice if not given", minimum=1)

    def __post_init__(self) -> None:
        check(self)
        if self.steps is not None and self.epochs is not None:
            raise MisuseError("--steps and --epochs exclude each other: give one of them")

    @property
    def items_per_step(self) -> int:
        """What a step takes of them."""
        return self.batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTrainingConfig(TrainingConfig):
    """What training on images has besides."""

    compile: bool = parameter(False, help="compile the model with torch.compile")
    channels_last: bool = parameter(False, help="keep images and weights with their channels innermost (NHWC)")
