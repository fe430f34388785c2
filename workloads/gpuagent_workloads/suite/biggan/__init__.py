"""Trains BigGAN at 128 × 128 pixels: a generator and a discriminator against each other."""

from dataclasses import dataclass
from typing import ClassVar

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.suite.classification import DATASET, PREPARATION
from gpuagent_workloads.training.config import SYNTHETIC, ImageTrainingConfig
from gpuagent_workloads.workload import Workload, parameter

# Self-attention compares eighths of the channels.
CH_MULTIPLE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImageTrainingConfig):
    """The shared parameters, and BigGAN's; the defaults are those of ajbrock/BigGAN-PyTorch, with the paper's --ch."""

    item: ClassVar[str] = "images"

    ch: int = parameter(96, help="channels at full size, a multiple of 8", minimum=8)
    classes: int = parameter(1000, help="classes of images", minimum=2, maximum=100_000)
    d_steps: int = parameter(2, help="updates of the discriminator per update of the generator", minimum=1)
    lr_g: float = parameter(5e-5, help="learning rate of the generator", minimum=0)
    lr_d: float = parameter(2e-4, help="learning rate of the discriminator", minimum=0)
    batch_size: int = parameter(64, help="real images of an update, and as many made ones", minimum=1)
    warmup: int = parameter(5, help="steps before the measured ones", minimum=0)
    data: str = parameter(SYNTHETIC, help="directory laid out as tiny-imagenet-200, or synthetic", path=True)
    workers: int | None = parameter(
        None, help="processes that decode images; by default the number of CPUs, at most 16", minimum=0
    )

    def check_together(self) -> None:
        """Check the number of channels."""
        if self.ch % CH_MULTIPLE:
            raise MisuseError(f"--ch must be a multiple of {CH_MULTIPLE}, for self-attention, not {self.ch}")

    @property
    def items_per_step(self) -> int:
        """Real images of a step of a rank; each update of the discriminator takes new ones."""
        return self.batch_size * self.d_steps

    @property
    def samples_per_step(self) -> int:
        """The same."""
        return self.items_per_step


WORKLOAD = Workload(
    name="biggan",
    summary="Trains BigGAN at 128 × 128 pixels (generator 70,433,988, discriminator 87,982,370 parameters, Adam).",
    kind="training",
    study="S3: bare-metal supercomputer and OpenShift compared",
    data="synthetic images made from the seed and kept on the device, or "
    "tiny-imagenet-200's folders (prepare biggan fetches 248 MB)",
    memory="on a GPU 19 GB for batches of 64 (15 to 24 GB by precision), 11 GB for 32, 36 GB for 128, measured on an "
    "H200; on the host 3 GB, estimated",
    config=Config,
    entry="gpuagent_workloads.suite.biggan.train:train_gan",
    preparation=PREPARATION,
    dataset=DATASET,
)
