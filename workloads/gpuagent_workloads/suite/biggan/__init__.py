"""Trains BigGAN at 128 × 128 pixels: a generator and a discriminator against each other.

    python -m gpuagent_workloads run biggan --device cuda --d-steps 1

On images of one's own or, as here, those of tiny-imagenet-200; all are scaled to 128 × 128 pixels:

    gpuagent prepare biggan --data ~/tiny-imagenet-200
    python -m gpuagent_workloads run biggan --data ~/tiny-imagenet-200 --classes 200
"""

from dataclasses import dataclass
from typing import ClassVar

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.parameters import parameter
from gpuagent_workloads.suite.classification import DATASET, PREPARATION
from gpuagent_workloads.training.config import SYNTHETIC, ImageTrainingConfig
from gpuagent_workloads.workload import Workload

# Self-attention compares eighths of the channels.
CH_MULTIPLE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImageTrainingConfig):
    """The shared parameters, and BigGAN's; the defaults are those of ajbrock/BigGAN-PyTorch, with the paper's --ch."""

    item: ClassVar[str] = "images"

    ch: int = parameter(
        96, help="channels of the layers at full size, a multiple of 8; others have up to 16 times as many", minimum=8
    )
    classes: int = parameter(1000, help="classes of images", minimum=2, maximum=100_000)
    d_steps: int = parameter(2, help="updates of the discriminator for one of the generator", minimum=1)
    ema: bool = parameter(False, help="keep a moving average of the generator's weights")
    batch_size: int = parameter(64, help="images of an update, real ones and as many made up", minimum=1)
    warmup: int = parameter(5, help="steps before the measured ones", minimum=0)
    data: str = parameter(SYNTHETIC, help="directory laid out as tiny-imagenet-200, or synthetic", path=True)
    workers: int | None = parameter(
        None, help="processes that decode images of --data; as many as CPUs, up to 16, if not given", minimum=0
    )

    def __post_init__(self) -> None:
        # Named, since super() does not find the class that slots=True makes of this one.
        ImageTrainingConfig.__post_init__(self)
        if self.ch % CH_MULTIPLE:
            raise MisuseError(f"--ch {self.ch} is no multiple of {CH_MULTIPLE}, which self-attention needs")

    @property
    def items_per_step(self) -> int:
        """Real images of a step of a rank; the discriminator is shown new ones in each of its updates."""
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
