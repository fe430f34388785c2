"""The parameters that all training workloads share."""

from dataclasses import dataclass
from typing import ClassVar

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.workload import Checked, parameter

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("default", "fp32", "tf32", "fp16", "bf16")
COUNTERS = ("none", "ncu")

# The value of `data` for data made from the seed.
SYNTHETIC = "synthetic"
# At a millisecond each they take eleven days; more is a slip of the keyboard.
MOST_STEPS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig(Checked):
    """The shared parameters. A workload's Config derives from it, with its own defaults of batch_size and data."""

    # The unit of throughput, in the plural.
    item: ClassVar[str] = "items"

    device: str = parameter("auto", help="where to train; auto: a GPU if there is one", choices=DEVICES)
    precision: str = parameter(
        "default", help="torch's own flags, TF32 off or on, or automatic mixed precision", choices=PRECISIONS
    )
    batch_size: int = parameter(64, help="samples a step", minimum=1)
    steps: int | None = parameter(
        None, help="measured steps; by default as many as take 10 s", minimum=1, maximum=MOST_STEPS
    )
    epochs: int | None = parameter(
        None, help="measured passes over the data, instead of --steps", minimum=1, maximum=MOST_STEPS
    )
    warmup: int = parameter(20, help="steps before the measured ones", minimum=0, maximum=MOST_STEPS)
    seed: int = parameter(1, help="seed of weights, order and synthetic data", minimum=0, maximum=2**32 - 1)
    data: str = parameter(SYNTHETIC, help="directory with the data, or synthetic", path=True)
    threads: int | None = parameter(
        None, help="CPU threads of a rank; by default torch's, divided among a node's ranks", minimum=1
    )
    compile: bool = parameter(False, help="compile the model with torch.compile")
    ranks: int = parameter(1, help="processes that train together, a GPU each; per node", minimum=1)
    nodes: int = parameter(1, help="nodes that train together; start the same command on each", minimum=1)
    elastic: str | None = parameter(
        None, help="MIN:MAX nodes: continue from a checkpoint when ranks fail or nodes join"
    )
    rendezvous: str | None = parameter(None, help="with --nodes or --elastic: HOST:PORT of one node, where all meet")
    max_restarts: int = parameter(3, help="with --elastic: failures that a node survives", minimum=0)
    checkpoint: str | None = parameter(
        None, help="with --elastic: directory shared by all nodes; by default in the run directory", path=True
    )
    checkpoint_every: int = parameter(100, help="with --elastic: steps between checkpoints", minimum=1)
    trace: bool = parameter(True, help="on a GPU: trace 3 steps after the measured ones")
    profile: bool = parameter(False, help="trace 5 steps with operators instead, and keep the trace")
    profile_wait: int = parameter(1, help="with --profile: steps without the profiler, in each cycle", minimum=0)
    profile_warmup: int = parameter(1, help="with --profile: then steps that are not kept", minimum=0)
    profile_active: int = parameter(5, help="with --profile: then steps that are kept", minimum=1)
    profile_repeat: int = parameter(1, help="with --profile: cycles, each with a trace of its own", minimum=1)
    counters: str = parameter("none", help="count a step's executed FLOPs and bytes in an extra run", choices=COUNTERS)

    def check_together(self) -> None:
        """Check what depends on several parameters."""
        if self.steps is not None and self.epochs is not None:
            raise MisuseError("--steps and --epochs exclude each other: give one of them")
        if self.counters != "none" and self.wants_torchrun:
            raise MisuseError("--counters counts one GPU: omit --ranks, --nodes and --elastic")
        self._check_rendezvous()
        if self.elastic is None:
            if self.checkpoint is not None:
                raise MisuseError("--checkpoint is for --elastic MIN:MAX, which is missing")
            return
        least, most = self.node_range
        if not self.has_fixed_work:
            raise MisuseError("--elastic needs a limit: give --steps or --epochs")
        if most > 1 and (self.rendezvous is None or self.checkpoint is None):
            raise MisuseError(
                f"--elastic {self.elastic} needs --rendezvous HOST:PORT, where the nodes meet, "
                "and --checkpoint DIRECTORY, which they share"
            )
        if self.nodes > 1 and not least <= self.nodes <= most:
            raise MisuseError(f"--nodes {self.nodes} contradicts --elastic {self.elastic}")

    @property
    def items_per_step(self) -> int:
        """Items in a step of a rank."""
        return self.batch_size

    @property
    def samples_per_step(self) -> int:
        """Samples of the data in a step of a rank: the number of its batches times their size."""
        return self.batch_size

    @property
    def node_range(self) -> tuple[int, int]:
        """The least and the greatest number of nodes. Raises MisuseError where --elastic is not MIN:MAX."""
        if self.elastic is None:
            return self.nodes, self.nodes
        least, colon, most = self.elastic.partition(":")
        if not (colon and least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
            raise MisuseError(f"--elastic needs MIN:MAX nodes, such as 1:2, not {self.elastic!r}")
        return int(least), int(most)

    @property
    def wants_torchrun(self) -> bool:
        """True if torchrun starts the ranks."""
        return self.ranks > 1 or self.nodes > 1 or self.elastic is not None

    @property
    def has_fixed_work(self) -> bool:
        """True if the amount of training is known beforehand."""
        return self.steps is not None or self.epochs is not None

    def _check_rendezvous(self) -> None:
        if self.rendezvous is None:
            if self.nodes > 1 and self.elastic is None:
                raise MisuseError(f"--nodes {self.nodes} needs --rendezvous HOST:PORT, where the nodes meet")
            return
        if self.nodes == 1 and self.elastic is None:
            raise MisuseError("--rendezvous is for several nodes: give --nodes or --elastic as well")
        host, _, port = self.rendezvous.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise MisuseError(f"--rendezvous needs HOST:PORT, such as node1:29400, not {self.rendezvous!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTrainingConfig(TrainingConfig):
    """The parameters of training on images."""

    channels_last: bool = parameter(False, help="store images and weights with channels innermost (NHWC)")
