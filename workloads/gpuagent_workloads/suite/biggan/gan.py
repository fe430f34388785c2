"""BigGAN's two networks in training.

Optimizers and losses are those of the paper and of the defaults of ajbrock/BigGAN-PyTorch; the penalty on weights that
are not orthogonal is the paper's. Batch normalisation takes the statistics of one batch of one rank. Real images are
neither cropped nor mirrored.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.losses import (
    add_penalty_gradients,
    discriminator_loss,
    frozen,
    generator_loss,
    regularised,
)
from gpuagent_workloads.suite.biggan.networks import Discriminator, Generator, draw
from gpuagent_workloads.training.compiling import compiled
from gpuagent_workloads.training.images import Batch, Normalisation, placed
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks, parallel

# Of each channel, so that real images are from -1 to 1, as made ones are.
MEAN = DEVIATION = (0.5, 0.5, 0.5)

GENERATOR_LEARNING_RATE, DISCRIMINATOR_LEARNING_RATE = 5e-5, 2e-4

BETAS = (0.0, 0.999)

EMA_DECAY = 0.9999


class Gan:
    """The networks with their optimizers."""

    # Of the discriminator's latest update, a scalar that is still on the device.
    discriminator_loss: torch.Tensor

    def __init__(self, config: Config, device: torch.device, precision: Precision, ranks: Ranks) -> None:
        """Build the networks on the device.

        Args:
            config: how to train.
            device: where to train.
            precision: of the training.
            ranks: which train together.
        """
        self._config, self._device, self._precision = config, device, precision
        self._normalise = Normalisation(MEAN, DEVIATION, device, channels_last=config.channels_last)
        # Not moved there: a CPU takes half a minute to make orthogonal matrices of this size.
        with device:
            generator, discriminator = Generator(config.ch, config.classes), Discriminator(config.ch, config.classes)
        self.generator = placed(generator, device, channels_last=config.channels_last)
        self.discriminator = placed(discriminator, device, channels_last=config.channels_last)
        averaging = get_ema_multi_avg_fn(EMA_DECAY)
        self.average = AveragedModel(self.generator, multi_avg_fn=averaging) if config.ema else None
        # A fused Adam removes fp16's scale from the gradients by itself, and so from the penalty's, which have none.
        fused = device.type == "cuda" and precision.dtype is not torch.float16
        self.generator_optimizer = _adam(self.generator, GENERATOR_LEARNING_RATE, fused)
        self.discriminator_optimizer = _adam(self.discriminator, DISCRIMINATOR_LEARNING_RATE, fused)
        self.generator_optimizer.register_step_pre_hook(lambda *_: self._penalise())
        # Ranks share the gradients of the network that learns; the other one is used as it is.
        both = (self.generator, self.discriminator)
        self._make, self._judge = (compiled(network, config.compile, device) for network in both)
        self._make_learning, self._judge_learning = (
            compiled(parallel(network, ranks, device), config.compile, device) for network in both
        )

    @property
    def networks(self) -> nn.ModuleDict:
        """Both, as one module."""
        return nn.ModuleDict({"generator": self.generator, "discriminator": self.discriminator})

    @property
    def parts(self) -> dict[str, Any]:
        """The content of a checkpoint, by name."""
        return {
            "networks": self.networks,
            "generator_optimizer": self.generator_optimizer,
            "discriminator_optimizer": self.discriminator_optimizer,
            "precision": self._precision,
            **({"average": self.average} if self.average else {}),
        }

    def step(self, batches: Iterator[Batch]) -> torch.Tensor:
        """Update the discriminator --d-steps times, then the generator once, and return the generator's loss.

        Args:
            batches: real images as bytes, and their labels; each update of the discriminator takes one.
        """
        for _ in range(self._config.d_steps):
            self._update_discriminator(*next(batches))
        with frozen(self.discriminator), self._precision.autocast():
            loss = generator_loss(self._make_learning, self._judge, draw(self._config, self._device))
        self._precision.update(loss, self.generator_optimizer)
        if self.average:
            self.average.update_parameters(self.generator)
        return loss

    def _update_discriminator(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        with self._precision.autocast():
            real = self._normalise(images), labels
            loss = discriminator_loss(self._make, self._judge_learning, real, draw(self._config, self._device))
        self._precision.update(loss, self.discriminator_optimizer)
        self.discriminator_loss = loss.detach()

    def _penalise(self) -> None:
        with self._precision.autocast():
            add_penalty_gradients(regularised(self.generator))


def _adam(network: nn.Module, learning_rate: float, fused: bool) -> torch.optim.Adam:
    return torch.optim.Adam(network.parameters(), lr=learning_rate, betas=BETAS, fused=fused)
