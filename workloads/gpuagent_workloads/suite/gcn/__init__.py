"""Trains a graph convolutional network (GCN) on Cora's citations, full-batch, and tests it."""

from dataclasses import dataclass
from typing import ClassVar

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.training.config import SYNTHETIC, TrainingConfig
from gpuagent_workloads.workload import Workload, parameter

ONE_RANK = "gcn takes the whole graph in each step, which ranks cannot share: omit --ranks, --nodes and --elastic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(TrainingConfig):
    """The shared parameters. A step takes the whole graph, so a step is an epoch, and a batch is one graph."""

    item: ClassVar[str] = "epochs"

    batch_size: int = parameter(1, help="graphs a step: there is one, taken whole", minimum=1, maximum=1)
    data: str = parameter(SYNTHETIC, help="directory with cora.content and cora.cites, or synthetic", path=True)

    def check_together(self) -> None:
        """Check the number of ranks."""
        if self.ranks > 1 or self.node_range != (1, 1):
            raise MisuseError(ONE_RANK)


WORKLOAD = Workload(
    name="gcn",
    summary="Trains and tests the 2-layer graph convolutional network of PyTorch's GCN example (23,040 parameters).",
    kind="training",
    study="S0: GPUs of a cloud compared",
    data="a synthetic citation graph of Cora's shape made from the seed, or Cora's files (prepare gcn fetches 0.2 MB)",
    memory="about 0.4 GB of the host's and, on a GPU, a few MB beside the CUDA context",
    config=Config,
    entry="gpuagent_workloads.suite.gcn.train:train_and_test",
    preparation="gpuagent_workloads.data.cora:CORA.prepare",
    dataset="cora",
)
