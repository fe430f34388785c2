"""Finds the most layers that fit into memory, as the study S2 did: the frontier of convolutions and linear layers."""

import re
from dataclasses import dataclass

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.training.config import DEVICES
from gpuagent_workloads.workload import Checked, Workload, parameter

_LAYERS = re.compile(r"\s*([0-9]{1,6}):([0-9]{1,6})\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The number of layers of a stack, the convolutions first; or the direction of a search, as their ratio."""

    conv: int
    fc: int

    @property
    def count(self) -> int:
        """All of them."""
        return self.conv + self.fc

    @property
    def name(self) -> str:
        """Their form in the names of results."""
        return f"conv{self.conv}_fc{self.fc}"

    def scaled(self, count: int) -> "Layers":
        """Return the stack of `count` layers that is closest to this ratio; of two, the one with more convolutions."""
        conv = -(-count * self.conv // self.count)
        return Layers(conv=conv, fc=count - conv)


def parse_layers(text: str, option: str, example: str) -> tuple[Layers, ...]:
    """Return the layers in a text such as `84:0+54:62`: more than one part are stages on one GPU each.

    Raises MisuseError: the text has another form, or a part has no layers.
    """
    parts = []
    for part in text.split("+"):
        found = _LAYERS.fullmatch(part)
        if found is None or int(found[1]) + int(found[2]) == 0:
            raise MisuseError(f"{option} needs convolutions to linear layers, such as {example}, not {text!r}")
        parts.append(Layers(conv=int(found[1]), fc=int(found[2])))
    return tuple(parts)


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
    points: str | None = parameter(
        None, help="stacks to time instead of a search: CONV:FC,…; parts on several GPUs joined by +"
    )
    split: int = parameter(1, help="GPUs that the parts of each of --points lie on", minimum=1)
    limit_bytes: int | None = parameter(
        None, help="memory of the stack on each device; on a GPU by default all", minimum=1 << 20
    )
    warmup: int = parameter(5, help="steps at each point before the timed ones", minimum=0)
    steps: int = parameter(10, help="timed steps at each point", minimum=1)

    def check_together(self) -> None:
        """Check the ratios, the points and the kernel."""
        if any(len(ratio) > 1 for ratio in self.directions):
            raise MisuseError(f"--ratios has parts, as --points may: name one ratio at a time, not {self.ratios!r}")
        if self.kernel % 2 == 0:
            raise MisuseError(f"--kernel must be odd, so that padding can keep the size, not {self.kernel}")
        if self.device == "cpu" and self.split > 1:
            raise MisuseError("--split is for GPUs: a CPU has one memory")
        if self.split > 1 and self.points is None:
            raise MisuseError(f"--split {self.split} needs --points, such as 84:0+54:62, with a part for each GPU")
        for stack in self.stacks:
            if len(stack) != self.split:
                raise MisuseError(f"--points names {len(stack)} GPUs, and --split {self.split}: give the same number")

    @property
    def directions(self) -> list[tuple[Layers, ...]]:
        """The directions of the search."""
        return [parse_layers(part, "--ratios", "1:0,0:1,1:1") for part in self.ratios.split(",")]

    @property
    def stacks(self) -> list[tuple[Layers, ...]]:
        """The stacks to try instead of a search, each in one part or one for each GPU."""
        if self.points is None:
            return []
        return [parse_layers(point, "--points", "61:62 or 84:0+54:62") for point in self.points.split(",")]


WORKLOAD = Workload(
    name="memory-limit",
    summary="Finds the most convolutions and linear layers that fit into memory in training, and times a step.",
    kind="measurement",
    study="S2: the memory limit of one GPU, and of two with the stack divided between them",
    data="none; the input is random",
    memory="all there is on the device, or --limit-bytes of it",
    config=Config,
    entry="gpuagent_workloads.suite.memory_limit.measure:find_frontier",
    first_phase="setup",
)
