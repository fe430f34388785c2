"""The parameters of the image classification workloads."""

import dataclasses
from dataclasses import dataclass

from gpuagent_workloads.errors import MisuseError
from gpuagent_workloads.parameters import parameter
from gpuagent_workloads.training.config import SYNTHETIC, ImageTrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationConfig(ImageTrainingConfig):
    """The shared parameters, and those of networks for large images."""

    batch_size: int = parameter(64, help="images a step", minimum=1)
    warmup: int = parameter(5, help="steps before those that are measured", minimum=1)
    batches: int | None = parameter(None, help="measured steps: another name for --steps", minimum=1)
    classes: int = parameter(200, help="classes to tell apart", minimum=2, maximum=100_000)
    # The smallest that AlexNet leaves something of is 63.
    image_size: int = parameter(224, help="pixels on each side of an image", minimum=64, maximum=1024)
    data: str = parameter(SYNTHETIC, help="directory of tiny-imagenet-200, or synthetic", path=True)
    workers: int | None = parameter(
        None, help="processes that decode images of --data; as many as CPUs, up to 16, if not given", minimum=0
    )

    def __post_init__(self) -> None:
        # Named, since super() does not find the class that slots=True makes of this one.
        ImageTrainingConfig.__post_init__(self)
        if self.batches is not None and (self.steps is not None or self.epochs is not None):
            raise MisuseError("--batches is another name for --steps, and --epochs excludes both: give one of them")

    @property
    def has_fixed_work(self) -> bool:
        """Whether it is known beforehand how much is to be trained."""
        return self.measured_steps is not None or self.epochs is not None

    @property
    def measured_steps(self) -> int | None:
        """Of --steps and --batches the one that is given; None: neither."""
        return self.batches if self.steps is None else self.steps


def with_steps(config: ClassificationConfig) -> ClassificationConfig:
    """Return `config` with its batches as steps, which is what the training loop knows."""
    return dataclasses.replace(config, steps=config.measured_steps, batches=None)
