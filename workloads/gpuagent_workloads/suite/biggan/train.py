"""Training of the biggan workload: its data, its steps, its figures and its costs."""

from collections.abc import Iterable

import torch
from torch import nn

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.gan import (
    Gan,
    discriminator_loss,
    frozen,
    generator_loss,
    penalty_gradient,
    regularised,
)
from gpuagent_workloads.suite.biggan.networks import SIDE, build_networks, draw
from gpuagent_workloads.suite.classification import ClassificationConfig
from gpuagent_workloads.suite.classification.sources import open_source
from gpuagent_workloads.training.loop import Feed, train
from gpuagent_workloads.training.model import count_flops, minimum_bytes, report_counts, report_mfu
from gpuagent_workloads.training.progress import resume
from gpuagent_workloads.training.session import Order, set_up


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
