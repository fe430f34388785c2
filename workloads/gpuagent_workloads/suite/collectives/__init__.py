"""Measures the links between GPUs: collectives by message size over all ranks, and exchanges of each pair."""

from dataclasses import dataclass

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.training.config import DEVICES
from gpuagent_workloads.workload import Checked, Workload, parameter, parse_size

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-recv")

# Places within a message are numbered by 32 bits.
_MOST_BYTES = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The ranks, the operations, and the sizes of their messages."""

    device: str = parameter("auto", help="where the data is; auto: GPUs if there are any", choices=DEVICES)
    ranks: int | None = parameter(
        None, help="processes, a GPU each; by default all GPUs, on a CPU 2", minimum=2, maximum=64
    )
    operations: str = parameter(",".join(OPERATIONS), help="operations to measure, comma-separated")
    sizes: str | None = parameter(None, help="bytes of a message: N, 4K, 16M, 1G, …; by default 1K to 1G")
    pairs: bool = parameter(True, help="with 3 ranks and more: also exchange within each pair")
    calls: int = parameter(20, help="most calls in a row, whose mean is a round's time", minimum=1, maximum=1000)
    rounds: int = parameter(5, help="rounds, of which the median is taken", minimum=1, maximum=1000)

    def check_together(self) -> None:
        """Check the operations and the sizes."""
        parse_operations(self.operations)
        if self.sizes is not None:
            parse_sizes(self.sizes)


def parse_operations(text: str) -> list[str]:
    """Return the operations of a comma-separated list, in its order and once each.

    Raises MisuseError: one is unknown.
    """
    names = [name.strip().replace("_", "-") for name in text.split(",")]
    for name in names:
        if name not in OPERATIONS:
            raise MisuseError(f"--operations has {name or 'an empty name'}: choose from {', '.join(OPERATIONS)}")
    return list(dict.fromkeys(names))


def parse_sizes(text: str) -> list[int]:
    """Return the bytes of a comma-separated list such as 4,1K,16M,1G, ascending; the letters are powers of 1024.

    Raises MisuseError: one is no size, below 4 bytes, or above 4G.
    """
    sizes = set()
    for part in text.split(","):
        size = parse_size(part)
        if size is None or not 4 <= size <= _MOST_BYTES:
            raise MisuseError(f"--sizes has {part.strip() or 'an empty size'}: give sizes from 4 to 4G, such as 1K,16M")
        sizes.add(size)
    return sorted(sizes)


WORKLOAD = Workload(
    name="collectives",
    summary="Measures the links between GPUs: collectives by message size, and the exchange of each pair.",
    kind="measurement",
    study="none of the five: what data-parallel training on today's machines waits for",
    data="none; the messages are made from the ranks' numbers, and checked",
    memory="up to 8 times the largest message on each device: 8 GB with the defaults; 1 GB of the host's a rank",
    config=Config,
    entry="gpuagent_workloads.suite.collectives.measure:measure",
    first_phase="setup",
)
