"""Trains the CNN of PyTorch's basic MNIST example, and tests it.

    python -m gpuagent_workloads run mnist --device auto --batch-size 64

With the real digits instead of synthetic ones:

    gpuagent prepare mnist --data ~/mnist
    python -m gpuagent_workloads run mnist --data ~/mnist --epochs 14
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent_workloads.parameters import parameter
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC, ImageTrainingConfig
from gpuagent_workloads.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImageTrainingConfig):
    """The shared parameters; the defaults are the example's."""

    batch_size: int = parameter(64, help="images a step", minimum=1)
    data: str = parameter(SYNTHETIC, help="directory with MNIST's four IDX files, or synthetic", path=True)


def run(config: Config, reporter: Reporter) -> None:
    """Train and test.

    Raises:
        MisuseError: the device, the precision or the batch size does not fit.
        DataError: the data cannot be used.
        NonFiniteError: the loss became NaN or infinite.
    """
    reporter.phase("prepare")
    # torch takes a second to import, which nobody should pay who only lists the workloads.
    from gpuagent_workloads.suite.mnist.train import train_and_test

    train_and_test(config, reporter)


def prepare(directory: Path, mirrors: Sequence[str]) -> None:
    """Fetch the four IDX files.

    Raises:
        DataError: no mirror has them as they must be.
    """
    from gpuagent_workloads.suite.mnist.data import fetch_digits

    fetch_digits(directory, mirrors)


WORKLOAD = Workload(
    name="mnist",
    summary="Trains and tests the CNN of PyTorch's basic MNIST example (1,199,882 parameters, Adadelta).",
    kind="training",
    study="S0: GPUs of a cloud compared; S1: virtual machine, Docker and Singularity compared",
    data="synthetic digits made from the seed, or MNIST's four IDX files (prepare mnist fetches 12 MB)",
    memory="about 0.8 GB of the host's and, on a GPU, 0.2 GB beside the CUDA context",
    config=Config,
    run=run,
    prepare=prepare,
)
