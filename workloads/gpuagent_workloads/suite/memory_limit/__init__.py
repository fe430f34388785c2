"""Finds the most layers that fit into memory, as S2 did: the frontier of convolutions and linear layers.

    python -m gpuagent_workloads run memory-limit --device cuda

On a CPU, within a limit that the kernel enforces, and with small activations:

    python -m gpuagent_workloads run memory-limit --device cpu --limit-bytes 200000000 --batch-size 2 --side 56

Over two GPUs, in the split that holds most layers:

    python -m gpuagent_workloads run memory-limit --split 2

The stacks that S2 names, on one GPU and divided over two:

    python -m gpuagent_workloads run memory-limit --points 61:62,62:61,62:62
    python -m gpuagent_workloads run memory-limit --split 2 --points 84:0+54:62
"""

from dataclasses import dataclass

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.parameters import Checked, parameter
from gpuagent_workloads.suite.memory_limit.search import parse_points, parse_ratios
from gpuagent_workloads.training.config import DEVICES
from gpuagent_workloads.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The stack, the device and the limits of the search."""

    device: str = parameter("auto", help="where to run; auto: a GPU if there is one", choices=DEVICES)
    batch_size: int = parameter(16, help="samples a step", minimum=1)
    channels: int = parameter(64, help="channels of the input and of each convolution", minimum=1)
    kernel: int = parameter(3, help="side of each convolution's kernel, odd; padding keeps the size", minimum=1)
    side: int = parameter(112, help="height and width of the input, and width of each linear layer", minimum=1)
    ratios: str = parameter(
        "1:0,0:1,1:1", help="points of the frontier: convolutions to linear layers, comma-separated"
    )
    points: str | None = parameter(None, help="stacks to time instead of a search: CONV:FC,…; GPUs joined by +")
    split: int = parameter(1, help="GPUs to split the stack over", minimum=1)
    limit_bytes: int | None = parameter(
        None,
        help="memory of the stack on each device; on a GPU by default all",
        minimum=1 << 20,
    )
    warmup: int = parameter(5, help="steps at each point before the timed ones", minimum=0)
    steps: int = parameter(10, help="timed steps at each point", minimum=1)

    def check_together(self) -> None:
        """Check the ratios, the points, the kernel and the split."""
        parse_ratios(self.ratios)
        if self.kernel % 2 == 0:
            raise MisuseError(f"--kernel must be odd, so that padding can keep the size, not {self.kernel}")
        for stages in parse_points(self.points or ""):
            if len(stages) not in (1, self.split):
                raise MisuseError(f"--points names {len(stages)} GPUs, and --split {self.split}: give the same number")
        if self.device == "cpu" and self.split > 1:
            raise MisuseError("--split is for GPUs: a CPU has one memory")


WORKLOAD = Workload(
    name="memory-limit",
    summary="Finds the most convolutions and linear layers that fit into memory in training, and times a step.",
    kind="measurement",
    study="S2: the memory limit of one GPU, and of two with the stack split between them",
    data="none; the input is random",
    memory="all there is on the device, or --limit-bytes of it",
    config=Config,
    entry="gpuagent_workloads.suite.memory_limit.measure:find_frontier",
    first_phase="setup",
)
