"""BigGAN's two networks in training.

Optimizers and losses are those of the paper and of the defaults of ajbrock/BigGAN-PyTorch; the penalty on weights that
are not orthogonal is the paper's. Batch normalisation takes the statistics of one batch of one rank, also where an
update adds up the gradients of several batches. Real images are neither cropped nor mirrored.

Shapes: B images of a batch, N features of the noise, O outputs of a layer, I weights of each of them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import relu
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.networks import build_networks, draw
from gpuagent_workloads.training.compiling import compiled
from gpuagent_workloads.training.images import Batch, Normalisation, placed
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks, parallel, without_sharing

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

EMA_DECAY = 0.9999


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
        averaging = get_ema_multi_avg_fn(EMA_DECAY)
        self.average = AveragedModel(self.generator, multi_avg_fn=averaging) if config.ema else None
        # A fused Adam removes fp16's scale from the gradients by itself, and so from the penalty's, which have none.
        fused = device.type == "cuda" and precision.dtype is not torch.float16
        self.generator_optimizer = _adam(self.generator, config.lr_g, fused)
        self.discriminator_optimizer = _adam(self.discriminator, config.lr_d, fused)
        self.generator_optimizer.register_step_pre_hook(lambda *_: self._penalise())
        # Ranks share the gradients of the network that learns; the other one is used as it is.
        both = (self.generator, self.discriminator)
        self._make, self._judge = (compiled(network, config.compile, device) for network in both)
        self._learners = [parallel(network, ranks, device) for network in both]
        self._make_learning, self._judge_learning = (
            compiled(learner, config.compile, device) for learner in self._learners
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
            batches: real images as bytes, and their labels; each update of the discriminator takes --accumulate.
        """
        make_learner, judge_learner = self._learners
        for _ in range(self._config.d_steps):
            self.discriminator_loss = self._update(
                judge_learner, self.discriminator_optimizer, lambda: self._discriminator_loss(*next(batches))
            )
        with frozen(self.discriminator):
            loss = self._update(make_learner, self.generator_optimizer, self._generator_loss)
        if self.average:
            self.average.update_parameters(self.generator)
        return loss

    def mean_score(self, images: int) -> float:
        """Return the mean score of that many made images, in evaluation mode; of the average's, where it is kept."""
        maker = self.average or self.generator
        networks = nn.ModuleList([maker, self.discriminator]).eval()
        scores = []
        with torch.inference_mode(), self._precision.autocast():
            for _ in range(-(-images // self._config.batch_size)):
                noise = draw(self._config, self._device)
                scores.append(self.discriminator(maker(*noise), noise[1]))
        networks.train()
        return torch.cat(scores)[:images].float().mean().item()

    def _update(
        self, learner: nn.Module, optimizer: torch.optim.Optimizer, loss_of_batch: Callable[[], torch.Tensor]
    ) -> torch.Tensor:
        """Take a step with the mean of the gradients of --accumulate batches, and return the mean of their losses."""
        count = self._config.accumulate
        losses = []

        def part() -> torch.Tensor:
            with self._precision.autocast():
                loss = loss_of_batch() / count
            losses.append(loss.detach())
            return loss

        optimizer.zero_grad()
        with without_sharing(learner):
            for _ in range(count - 1):
                self._precision.backward(part())
        self._precision.backward(part())
        self._precision.step(optimizer)
        return torch.stack(losses).sum()

    def _generator_loss(self) -> torch.Tensor:
        return generator_loss(self._make_learning, self._judge, draw(self._config, self._device))

    def _discriminator_loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        real = self._normalise(images), labels
        return discriminator_loss(self._make, self._judge_learning, real, draw(self._config, self._device))

    def _penalise(self) -> None:
        with self._precision.autocast():
            add_penalty_gradients(regularised(self.generator))


def _adam(network: nn.Module, learning_rate: float, fused: bool) -> torch.optim.Adam:
    return torch.optim.Adam(network.parameters(), lr=learning_rate, betas=BETAS, fused=fused)
