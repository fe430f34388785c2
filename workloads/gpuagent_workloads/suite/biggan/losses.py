"""The losses of BigGAN's networks, and the penalty on the generator's weights.

Shapes: B images of a batch, N features of the noise, O outputs of a layer, I weights of each of them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.functional import relu

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
