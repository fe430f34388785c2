"""Trains the CNN of PyTorch's CIFAR-10 tutorial, and tests it."""

from dataclasses import dataclass

from gpuagent_workloads.training.config import SYNTHETIC, ImageTrainingConfig
from gpuagent_workloads.workload import Workload, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImageTrainingConfig):
    """The shared parameters; the defaults are the tutorial's."""

    batch_size: int = parameter(4, help="images a step", minimum=1)
    data: str = parameter(SYNTHETIC, help="directory with CIFAR-10's binary files, or synthetic", path=True)


WORKLOAD = Workload(
    name="cifar10",
    summary="Trains and tests the CNN of PyTorch's CIFAR-10 tutorial (62,006 parameters, SGD with momentum).",
    kind="training",
    study="S0: GPUs of a cloud compared",
    data="synthetic images made from the seed, or CIFAR-10's binary files (prepare cifar10 fetches 170 MB)",
    memory="about 0.8 GB of the host's and, on a GPU, 0.1 GB beside the CUDA context",
    config=Config,
    entry="gpuagent_workloads.suite.cifar10.train:train_and_test",
    preparation="gpuagent_workloads.data.cifar:CIFAR10.prepare",
)
