"""Trains a graph convolutional network (GCN) on Cora's citations, full-batch, and tests it.

    python -m gpuagent_workloads run gcn --device auto --epochs 200

With the real papers instead of a synthetic graph, unpacked from https://linqs-data.soe.ucsc.edu/public/lbc/cora.tgz:

    python -m gpuagent_workloads run gcn --data ~/cora --epochs 200
"""

from dataclasses import dataclass
from typing import ClassVar

from gpuagent_workloads.parameters import parameter
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC, TrainingConfig
from gpuagent_workloads.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(TrainingConfig):
    """The shared parameters. A step takes the whole graph, so a step is an epoch, and a batch is one graph."""

    item: ClassVar[str] = "epochs"

    batch_size: int = parameter(1, help="graphs a step: there is one, taken whole", minimum=1, maximum=1)
    data: str = parameter(SYNTHETIC, help="directory with cora.content and cora.cites, or synthetic", path=True)


def run(config: Config, reporter: Reporter) -> None:
    """Train and test.

    Raises:
        MisuseError: the device or the precision does not fit.
        DataError: the data cannot be used.
        NonFiniteError: the loss became NaN or infinite.
    """
    reporter.phase("prepare")
    # torch takes a second to import, which nobody should pay who only lists the workloads.
    from gpuagent_workloads.suite.gcn.train import train_and_test

    train_and_test(config, reporter)


WORKLOAD = Workload(
    name="gcn",
    summary="Trains and tests the 2-layer graph convolutional network of PyTorch's GCN example (23,040 parameters).",
    kind="training",
    study="S0: GPUs of a cloud compared",
    data="a synthetic citation graph of Cora's shape made from the seed, or Cora's two files",
    memory="about 0.4 GB of the host's and, on a GPU, a few MB beside the CUDA context",
    config=Config,
    run=run,
)
