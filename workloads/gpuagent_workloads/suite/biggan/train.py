"""The training of the biggan workload: its data, its steps, its figures."""

from gpuagent_workloads.classification.config import ClassificationConfig
from gpuagent_workloads.classification.sources import open_source
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.costs import loss_on_meta_device, minimum_bytes_per_step
from gpuagent_workloads.suite.biggan.gan import Gan
from gpuagent_workloads.suite.biggan.generator import SIDE
from gpuagent_workloads.training.elastic.progress import resume
from gpuagent_workloads.training.feed import Feed
from gpuagent_workloads.training.loop import train
from gpuagent_workloads.training.mfu import report_mfu
from gpuagent_workloads.training.model import report_model
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.setup import set_up


def train_gan(config: Config, reporter: Reporter) -> None:
    """Run the workload from its data to its figures. No images are made or scored after training."""
    source = open_source(images_config_of(config), reporter)

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
    flops = report_model(gan.networks, lambda: loss_on_meta_device(config), reporter)
    report_mfu(flops, measured, precision, device, reporter)
    reporter.result("minimum_bytes_per_step", minimum_bytes_per_step(gan, config.d_steps, next(feed)), unit="bytes")


def images_config_of(config: Config) -> ClassificationConfig:
    """Return what the classification workloads' readers need to know to give these images."""
    return ClassificationConfig(
        batch_size=config.batch_size,
        classes=config.classes,
        image_size=SIDE,
        seed=config.seed,
        data=config.data,
        workers=config.workers,
    )
