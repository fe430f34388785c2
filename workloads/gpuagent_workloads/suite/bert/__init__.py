"""Trains BERT to restore masked tokens, by default its base model of 109,514,298 parameters."""

from dataclasses import dataclass
from typing import ClassVar

from gpuagent_workloads.training.config import SYNTHETIC, TrainingConfig
from gpuagent_workloads.workload import Workload, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The shape of a model: its layers, the features of a token, the heads that share them, and its tokens."""

    layers: int
    width: int
    heads: int
    vocabulary: int = 30_522


# base and large are those of Devlin et al. 2019.
SIZES = {
    "tiny": Size(layers=2, width=64, heads=4, vocabulary=256),
    "base": Size(layers=12, width=768, heads=12),
    "large": Size(layers=24, width=1024, heads=16),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(TrainingConfig):
    """The shared parameters, and the model's size."""

    item: ClassVar[str] = "tokens"

    model: str = parameter("base", help="size of the model", choices=tuple(SIZES))
    context: int = parameter(512, help="tokens of a sequence", minimum=2, maximum=512)
    batch_size: int = parameter(32, help="sequences a step", minimum=1)
    data: str = parameter(SYNTHETIC, help="directory with train.bin and val.bin, or synthetic", path=True)

    @property
    def size(self) -> Size:
        """The shape of the model."""
        return SIZES[self.model]

    @property
    def items_per_step(self) -> int:
        """Tokens of a step, masked and others."""
        return self.batch_size * self.context

    @property
    def masked(self) -> int:
        """Masked tokens of a sequence, 15 %."""
        return max(1, round(0.15 * self.context))


WORKLOAD = Workload(
    name="bert",
    summary="Trains BERT to restore masked tokens, by default its base model (109,514,298 parameters).",
    kind="training",
    study="none of the five: a workload of today's GPUs",
    data="a synthetic token stream made from the seed, or train.bin and val.bin",
    memory="in float32 1.8 GB for weights, gradients and optimizer, and 15 GB for 32 sequences of 512, estimated",
    config=Config,
    entry="gpuagent_workloads.suite.bert.train:train",
)
