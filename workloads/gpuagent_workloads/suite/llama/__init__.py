"""Trains a Llama model, whole or by adapters, on one GPU or several."""

from dataclasses import dataclass
from typing import ClassVar

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.llama import FLOAT8_MULTIPLE, PRESETS, Size
from gpuagent_workloads.training.config import PRECISIONS, SYNTHETIC, TrainingConfig
from gpuagent_workloads.workload import Workload, parameter

STRATEGIES = ("ddp", "fsdp2", "tp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(TrainingConfig):
    """The shared parameters, the model's size, and how it is divided."""

    item: ClassVar[str] = "tokens"

    precision: str = parameter(
        "default",
        help="torch's own flags, TF32 off or on, mixed precision, or fp8 (torchao)",
        choices=(*PRECISIONS, "fp8"),
    )
    model: str = parameter("60m", help="size of the model", choices=tuple(PRESETS))
    context: int = parameter(2048, help="tokens of a sequence", minimum=2, maximum=131_072)
    strategy: str = parameter(
        "ddp",
        help="of several ranks: each has all weights, fetches their shards, or has a part of each layer",
        choices=STRATEGIES,
    )
    recompute: bool = parameter(False, help="activation checkpointing: keep only each block's input")
    loss_chunk: int | None = parameter(
        None, help="tokens whose scores are computed at a time, twice; by default all, once", minimum=1
    )
    lora: int | None = parameter(None, help="train adapters of this rank instead of the weights", minimum=1)
    batch_size: int = parameter(4, help="sequences a step", minimum=1)
    warmup: int = parameter(5, help="steps before the measured ones", minimum=0)
    data: str = parameter(SYNTHETIC, help="directory with train.bin and val.bin, or synthetic", path=True)

    def check_together(self) -> None:
        """Check what FP8 and the strategy need."""
        if self.precision == "fp8" and self.items_per_step % FLOAT8_MULTIPLE:
            raise MisuseError(
                f"--precision fp8 needs a multiple of {FLOAT8_MULTIPLE} tokens a step, not --batch-size "
                f"{self.batch_size} × --context {self.context}: change one, or use bf16"
            )
        self.check_strategy(self.ranks * self.nodes)

    def check_strategy(self, ranks: int) -> None:
        """Check that the model can be divided among so many ranks. Raises MisuseError where it cannot."""
        if self.strategy == "ddp":
            return
        if self.elastic is not None:
            raise MisuseError(f"--elastic saves whole weights: with it, --strategy {self.strategy} must be ddp")
        if ranks == 1:
            raise MisuseError(
                f"--strategy {self.strategy} divides the model among ranks: give --ranks 2 or more, or omit it"
            )
        if self.precision == "fp16":
            raise MisuseError(f"--strategy {self.strategy} has no scaling of gradients: use --precision bf16")
        if self.strategy == "tp":
            self._check_tensor_parallel(ranks)

    def _check_tensor_parallel(self, ranks: int) -> None:
        if self.lora is not None:
            raise MisuseError("--strategy tp divides no adapters: omit --lora, or use ddp or fsdp2")
        if self.precision == "fp8":
            raise MisuseError("--strategy tp divides no layers in FP8: use --precision bf16, or ddp or fsdp2")
        if self.compile:
            raise MisuseError("--strategy tp cannot be compiled: omit --compile, or use ddp or fsdp2")
        size = self.size
        divided = {
            f"the {size.heads} heads of {self.model}": size.heads,
            f"the {size.kv_heads} heads of keys and values of {self.model}": size.kv_heads,
            f"the {size.hidden} hidden features of {self.model}": size.hidden,
            f"the {size.vocabulary} tokens of {self.model}'s vocabulary": size.vocabulary,
            f"--context {self.context}": self.context,
        }
        for words, count in divided.items():
            if count % ranks:
                raise MisuseError(f"--strategy tp needs ranks that divide {words}; {ranks} ranks do not")

    @property
    def size(self) -> Size:
        """The shape of the model."""
        return PRESETS[self.model]

    @property
    def items_per_step(self) -> int:
        """Tokens of a step."""
        return self.batch_size * self.context


WORKLOAD = Workload(
    name="llama",
    summary="Trains a Llama model of 60 million to 8 billion parameters, by DDP, FSDP2 or tensor parallelism.",
    kind="training",
    study="none of the five: a workload of today's GPUs",
    data="a synthetic token stream made from the seed, or train.bin and val.bin",
    memory="16 bytes a parameter for float32 weights, gradients and optimizer (1b: 20 GB), and activations",
    config=Config,
    entry="gpuagent_workloads.suite.llama.train:train",
)
