"""Training of the biggan workload: its two networks, its steps, its figures and its costs.

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

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.networks import SIDE, build_networks, draw
from gpuagent_workloads.suite.classification import ClassificationConfig
from gpuagent_workloads.suite.classification.sources import open_source
from gpuagent_workloads.training.images import Batch, Normalisation, placed
from gpuagent_workloads.training.loop import Feed, train
from gpuagent_workloads.training.model import compiled, count_flops, minimum_bytes, report_counts, report_mfu
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.progress import resume
from gpuagent_workloads.training.ranks import Ranks, parallel
from gpuagent_workloads.training.session import Order, set_up

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


def train_gan(config: Config, reporter: Reporter) -> None:
    """Run the workload from its data to its figures."""
    images = ClassificationConfig(
        batch_size=config.batch_size,
        classes=config.classes,
        image_size=SIDE,
        seed=config.seed,
        data=config.data,
        workers=config.workers,
    )
    source = open_source(images, reporter)

    reporter.phase("setup")
    device, precision, ranks = set_up(config, reporter)
    gan = Gan(config, device, precision, ranks)
    progress = resume(config, ranks, device, gan.parts)
    order = Order(len(source), config, progress)
    feed = Feed(source.batches(order, device))

    measured = train(lambda: gan.step(feed), config, order.steps_per_epoch, device, reporter, feed, progress)
    reporter.result("discriminator_loss", gan.discriminator_loss.item())
    for name, network in gan.networks.named_children():
        reporter.result(f"{name}_parameters", sum(weights.numel() for weights in network.parameters()))
    flops = count_flops(lambda: loss_on_meta_device(config))
    report_counts(gan.networks, flops, reporter)
    report_mfu(flops, measured, precision, device, reporter)
    reporter.result("minimum_bytes_per_step", minimum_bytes_per_step(gan, config.d_steps, next(feed)), unit="bytes")


def loss_on_meta_device(config: Config) -> torch.Tensor:
    """Return the generator's loss of a step on the meta device, to count the step's FLOPs with its backward pass.

    The rest of the step takes place in here and is counted with it: the updates of the discriminator, and the matrix
    products of the penalty. Spectral normalisation multiplies matrices by vectors only, which torch does not count.
    """
    device = torch.device("meta")
    with device:
        generator, discriminator = build_networks(config)
        real = torch.empty(config.batch_size, 3, SIDE, SIDE), torch.empty(config.batch_size, dtype=torch.long)
    for _ in range(config.d_steps):
        discriminator_loss(generator, discriminator, real, draw(config, device)).backward()
    for weights in regularised(generator):
        penalty_gradient(weights.detach())
    with frozen(discriminator):
        return generator_loss(generator, discriminator, draw(config, device))


def minimum_bytes_per_step(gan: Gan, d_steps: int, batch: Iterable[torch.Tensor]) -> int:
    """Return a lower bound of the bytes that a step moves to and from the device's memory.

    Each update moves the `training.model.minimum_bytes` of its network, and reads the other network's weights.

    Args:
        gan: after its first step.
        d_steps: updates of the discriminator.
    """
    of_discriminator = minimum_bytes(gan.discriminator, gan.discriminator_optimizer, batch)
    of_generator = minimum_bytes(gan.generator, gan.generator_optimizer, ())
    of_others = d_steps * _weight_bytes(gan.generator) + _weight_bytes(gan.discriminator)
    return d_steps * of_discriminator + of_generator + of_others


def _weight_bytes(network: nn.Module) -> int:
    return sum(weights.nbytes for weights in network.parameters())
