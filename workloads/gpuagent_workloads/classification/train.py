"""The training of the image classification workloads.

Optimizer and normalisation are those of pytorch/examples, imagenet/main.py; its learning rate is for batches of 256 and
is scaled to others. Nothing is tested after training: the studies stop after 15 batches, where accuracy says nothing.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gpuagent_workloads.classification.config import ClassificationConfig, with_steps
from gpuagent_workloads.classification.sources import open_source
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.compiling import compiled
from gpuagent_workloads.training.elastic.progress import resume
from gpuagent_workloads.training.feed import Feed
from gpuagent_workloads.training.images import Normalisation, placed
from gpuagent_workloads.training.loop import train
from gpuagent_workloads.training.mfu import report_mfu
from gpuagent_workloads.training.model import report_minimum_bytes, report_model
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.ranks import parallel
from gpuagent_workloads.training.setup import set_up

# Of ImageNet's channels, on a scale from 0 to 1.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4

# The batch size that learning rates are given for.
LEARNING_RATE_BATCH_SIZE = 256

Build = Callable[[], nn.Module]


def train_classifier(build: Build, learning_rate: float, config: ClassificationConfig, reporter: Reporter) -> None:
    """Train the network that `build` returns, (batch, 3, side, side) to scores (batch, classes).

    Args:
        build: makes the network, with new weights.
        learning_rate: for batches of 256.
        config: how to train.
        reporter: where to report.
    """
    source = open_source(config, reporter)

    reporter.phase("setup")
    device, precision, ranks = set_up(config, reporter)
    model = placed(build(), device, channels_last=config.channels_last)
    forward = compiled(parallel(model, ranks, device), config.compile, device)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=learning_rate * config.batch_size * ranks.size / LEARNING_RATE_BATCH_SIZE,
        momentum=MOMENTUM,
        weight_decay=WEIGHT_DECAY,
    )
    progress = resume(config, ranks, device, {"model": model, "optimizer": optimizer, "precision": precision})
    order = Order(len(source), config, progress)
    normalise = Normalisation(MEAN, DEVIATION, device, channels_last=config.channels_last)
    feed = Feed(source.batches(order, device))

    def step() -> torch.Tensor:
        images, labels = next(feed)
        with precision.autocast():
            loss = cross_entropy(forward(normalise(images)), labels)
        precision.update(loss, optimizer)
        return loss

    measured = train(step, with_steps(config), order.steps_per_epoch, device, reporter, feed, progress)
    flops = report_model(model, lambda: loss_on_meta_device(build, config.batch_size, config.image_size), reporter)
    report_mfu(flops, measured, precision, device, reporter)
    report_minimum_bytes(model, optimizer, next(feed), reporter)


def loss_on_meta_device(build: Build, batch_size: int, side: int) -> torch.Tensor:
    """Return the loss of a step on the meta device, where tensors have shapes but no values, to count its FLOPs."""
    with torch.device("meta"):
        images = torch.empty(batch_size, 3, side, side)
        labels = torch.empty(batch_size, dtype=torch.long)
        return cross_entropy(build()(images), labels)
