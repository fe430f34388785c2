"""A BigGAN that is small enough for tests."""

import torch
from torch import nn

from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.gan import Gan
from gpuagent_workloads.training.images import Batch
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks

CPU = torch.device("cpu")
SMALL = Config(ch=8, classes=3, device="cpu", batch_size=1, d_steps=1, warmup=1, steps=1, threads=1)
BATCH: Batch = (torch.full((1, 128, 128, 3), 100, dtype=torch.uint8), torch.tensor([2]))


def small_gan(config: Config = SMALL) -> Gan:
    torch.manual_seed(1)
    return Gan(config, CPU, Precision(config.precision, CPU), Ranks())


def size_of(network: nn.Module) -> int:
    return sum(weights.numel() for weights in network.parameters())
