"""Trains the CNN of PyTorch's CIFAR-10 tutorial, and tests it.

    python -m gpuagent_workloads run cifar10 --device auto --batch-size 4

With the real images instead of synthetic ones, unpacked from cifar-10-binary.tar.gz or cifar-10-python.tar.gz:

    python -m gpuagent_workloads run cifar10 --data ~/cifar-10-batches-bin --epochs 2
"""

from dataclasses import dataclass

from gpuagent_workloads.parameters import parameter
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC, ImageTrainingConfig
from gpuagent_workloads.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImageTrainingConfig):
    """The shared parameters; the defaults are the tutorial's."""

    batch_size: int = parameter(4, help="images a step", minimum=1)
    data: str = parameter(SYNTHETIC, help="directory with CIFAR-10's binary or Python files, or synthetic", path=True)


def run(config: Config, reporter: Reporter) -> None:
    """Train and test.

    Raises:
        MisuseError: the device, the precision or the batch size does not fit.
        DataError: the data cannot be used.
        NonFiniteError: the loss became NaN or infinite.
    """
    reporter.phase("prepare")
    # torch takes a second to import, which nobody should pay who only lists the workloads.
    from gpuagent_workloads.suite.cifar10.train import train_and_test

    train_and_test(config, reporter)


WORKLOAD = Workload(
    name="cifar10",
    summary="Trains and tests the CNN of PyTorch's CIFAR-10 tutorial (62,006 parameters, SGD with momentum).",
    kind="training",
    study="S0: GPUs of a cloud compared",
    data="synthetic images made from the seed, or CIFAR-10's files, binary or Python",
    memory="about 0.8 GB of the host's and, on a GPU, 0.1 GB beside the CUDA context",
    config=Config,
    run=run,
)
