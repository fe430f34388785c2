"""Trains a decoder-only Transformer language model, by default of GPT-2's smallest size."""

from dataclasses import dataclass
from typing import ClassVar

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.training.config import SYNTHETIC, TrainingConfig
from gpuagent_workloads.workload import Workload, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(TrainingConfig):
    """The shared parameters, and the model's size; the defaults are those of GPT-2's smallest."""

    item: ClassVar[str] = "tokens"

    layers: int = parameter(12, help="Transformer blocks", minimum=1)
    heads: int = parameter(12, help="attention heads of a block, which share the width", minimum=1)
    width: int = parameter(768, help="features of a token", minimum=1)
    context: int = parameter(1024, help="tokens of a sequence", minimum=1)
    # Tokens are stored in two bytes.
    vocabulary: int = parameter(50_257, help="number of different tokens", minimum=2, maximum=65_536)
    batch_size: int = parameter(8, help="sequences a step", minimum=1)
    data: str = parameter(SYNTHETIC, help="directory with train.bin and val.bin, or synthetic", path=True)

    def check_together(self) -> None:
        """Check the width."""
        if self.width % self.heads:
            raise MisuseError(f"--width {self.width} must be a multiple of --heads, which is {self.heads}")

    @property
    def items_per_step(self) -> int:
        """Tokens of a step."""
        return self.batch_size * self.context


WORKLOAD = Workload(
    name="gpt",
    summary="Trains a decoder-only Transformer language model, by default GPT-2's smallest (124,439,808 parameters).",
    kind="training",
    study="none of the five: a workload of today's GPUs",
    data="a synthetic token stream made from the seed, or nanoGPT's train.bin and val.bin",
    memory="in float32 2 GB for weights and optimizer and 1.2 GB a sequence: 12 GB with the defaults, estimated",
    config=Config,
    entry="gpuagent_workloads.suite.gpt.train:train_and_validate",
)
