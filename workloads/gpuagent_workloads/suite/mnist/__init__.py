"""Trains the CNN of PyTorch's basic MNIST example, and tests it."""

from dataclasses import dataclass

from gpuagent_workloads.training.config import SYNTHETIC, ImageTrainingConfig
from gpuagent_workloads.workload import Workload, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImageTrainingConfig):
    """The shared parameters; the defaults are the example's."""

    batch_size: int = parameter(64, help="images a step", minimum=1)
    data: str = parameter(SYNTHETIC, help="directory with MNIST's four IDX files, or synthetic", path=True)


WORKLOAD = Workload(
    name="mnist",
    summary="Trains and tests the CNN of PyTorch's basic MNIST example (1,199,882 parameters, Adadelta).",
    kind="training",
    study="S0: GPUs of a cloud compared; S1: virtual machine, Docker and Singularity compared",
    data="synthetic digits made from the seed, or MNIST's four IDX files (prepare mnist fetches 12 MB)",
    memory="about 0.8 GB of the host's and, on a GPU, 0.2 GB beside the CUDA context",
    config=Config,
    entry="gpuagent_workloads.suite.mnist.train:train_and_test",
    preparation="gpuagent_workloads.suite.mnist.data:fetch_digits",
)
