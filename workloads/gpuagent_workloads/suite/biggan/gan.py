"""BigGAN's two networks in training.

Optimizers and losses are those of the paper and of the defaults of ajbrock/BigGAN-PyTorch; the penalty on weights that
are not orthogonal is the paper's. Batch normalisation takes the statistics of one batch of one rank. Real images are
neither cropped nor mirrored.

Shapes: B images of a batch, N features of the noise, O outputs of a layer, I weights of each of them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import relu

from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.networks import build_networks, draw
from gpuagent_workloads.training.images import Batch, Normalisation, placed
from gpuagent_workloads.training.model import compiled
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks, parallel

# Strength of the penalty on weights that are not orthogonal: β of the paper's equation 3.
PENALTY = 1e-4

# A network, or its parallel or compiled form.
Network = Callable[..., torch.Tensor]

# Real images (B, 3, 128, 128) or noise (B, N) to make images of, and their labels (B,).
Labelled = tuple[torch.Tensor, torch.Tensor]


def discriminator_loss(generator: Network, discriminator: Network, real: Labelled, noise: Labelled) -> torch.Tensor:
    """Return the hinge loss of distinguishing real images from as many that the generator makes of `noise`."""
    with torch.no_grad():
        made_images = generator(*noise)
    # In one pass, as in the reference.
    scores = discriminator(torch.cat([made_images, real[0]]), torch.cat([noise[1], real[1]]))
    made_scores_B, real_scores_B = scores.chunk(2)
    return relu(1 + made_scores_B).mean() + relu(1 - real_scores_B).mean()


def generator_loss(generator: Network, discriminator: Network, noise: Labelled) -> torch.Tensor:
    """Return the negative mean score of the images that the generator makes of `noise`."""
    return -discriminator(generator(*noise), noise[1]).mean()


def regularised(generator: nn.Module) -> list[nn.Parameter]:
    """Return the weights with a penalty: all but those of the classes, which all blocks share."""
    named = generator.named_parameters()
    return [weights for name, weights in named if weights.dim() >= 2 and not name.startswith("class_embedding.")]


@torch.no_grad()
def add_penalty_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Add the penalty's gradients to those of the weights."""
    for weights in parameters:
        if weights.grad is not None:
            weights.grad.add_(penalty_gradient(weights), alpha=PENALTY)


def penalty_gradient(weights: torch.Tensor) -> torch.Tensor:
    """Return the gradient of ‖W Wᵀ ⊙ (1 - I)‖², with `weights` as a matrix W of a row for each output.

    That is 4 (W Wᵀ W - D W), with D the diagonal of W Wᵀ.
    """
    w_OI = weights.flatten(1)
    # The product of three begins at the cheaper end: with more outputs than inputs, W Wᵀ alone could be gigabytes.
    product_OI = torch.linalg.multi_dot((w_OI, w_OI.T, w_OI))
    diagonal_O1 = w_OI.square().sum(dim=1, keepdim=True)
    gradient_OI: torch.Tensor = 4 * (product_OI - diagonal_O1 * w_OI)
    return gradient_OI.view_as(weights)


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Suppress gradients of the network's weights within the context."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)


# Of each channel, so that real images are from -1 to 1, as made ones are.
MEAN = DEVIATION = (0.5, 0.5, 0.5)

BETAS = (0.0, 0.999)


class Gan:
    """The networks with their optimizers."""

    # Of the discriminator's latest update, a scalar that is still on the device.
    discriminator_loss: torch.Tensor

    def __init__(self, config: Config, device: torch.device, precision: Precision, ranks: Ranks) -> None:
        """Build the networks on the device."""
        self._config, self._device, self._precision = config, device, precision
        self._normalise = Normalisation(MEAN, DEVIATION, device, channels_last=config.channels_last)
        # Not moved there: a CPU takes half a minute to make orthogonal matrices of this size.
        with device:
            generator, discriminator = build_networks(config)
        self.generator = placed(generator, device, channels_last=config.channels_last)
        self.discriminator = placed(discriminator, device, channels_last=config.channels_last)
        # A fused Adam removes fp16's scale from the gradients by itself, and so from the penalty's, which have none.
        fused = device.type == "cuda" and precision.dtype is not torch.float16
        self.generator_optimizer = _adam(self.generator, config.lr_g, fused)
        self.discriminator_optimizer = _adam(self.discriminator, config.lr_d, fused)
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
        }

    def step(self, batches: Iterator[Batch]) -> torch.Tensor:
        """Update the discriminator --d-steps times, then the generator once, and return the generator's loss.

        Args:
            batches: real images as bytes, and their labels; each update of the discriminator takes one.
        """
        config, device = self._config, self._device
        for _ in range(config.d_steps):
            images, labels = next(batches)
            # Gradients take no memory during the forward passes.
            self.discriminator_optimizer.zero_grad()
            with self._precision.autocast():
                real = self._normalise(images), labels
                loss = discriminator_loss(self._make, self._judge_learning, real, draw(config, device))
            self._precision.update(loss, self.discriminator_optimizer)
            self.discriminator_loss = loss.detach()
        self.generator_optimizer.zero_grad()
        with frozen(self.discriminator):
            with self._precision.autocast():
                loss = generator_loss(self._make_learning, self._judge, draw(config, device))
            self._precision.update(loss, self.generator_optimizer)
        return loss.detach()

    def _penalise(self) -> None:
        with self._precision.autocast():
            add_penalty_gradients(regularised(self.generator))


def _adam(network: nn.Module, learning_rate: float, fused: bool) -> torch.optim.Adam:
    return torch.optim.Adam(network.parameters(), lr=learning_rate, betas=BETAS, fused=fused)
