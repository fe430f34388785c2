"""The training of the MNIST workload.

Network, optimizer, schedule and normalisation are those of pytorch/examples, mnist/main.py. An epoch's last samples
share a batch with the next one's first, so that all steps do the same work.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import torch
from torch import nn
from torch.nn.functional import nll_loss

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.mnist.data import CLASSES, load_digits
from gpuagent_workloads.suite.mnist.synthetic import SIDE
from gpuagent_workloads.training.compiling import compiled
from gpuagent_workloads.training.config import ImageTrainingConfig
from gpuagent_workloads.training.elastic.checkpoint import Stateful
from gpuagent_workloads.training.elastic.progress import resume
from gpuagent_workloads.training.feed import Feed
from gpuagent_workloads.training.images import accuracy_percent, endless_batches, placed
from gpuagent_workloads.training.loop import train
from gpuagent_workloads.training.mfu import report_mfu
from gpuagent_workloads.training.model import report_minimum_bytes, report_model
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.ranks import parallel
from gpuagent_workloads.training.setup import set_up

# Of MNIST's pixels, on a scale from 0 to 1.
MEAN, DEVIATION = 0.1307, 0.3081

# The learning rate is multiplied by gamma after each epoch.
LEARNING_RATE, GAMMA = 1.0, 0.7

BatchT = TypeVar("BatchT")


def train_and_test(config: ImageTrainingConfig, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy."""
    train_digits, test_digits = load_digits(config.data, config.seed, reporter)

    reporter.phase("setup")
    device, precision, ranks = set_up(config, reporter)
    model = placed(build_network(), device, channels_last=config.channels_last)
    forward = compiled(parallel(model, ranks, device), config.compile, device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=GAMMA)
    parts: Mapping[str, Stateful] = {
        "model": model,
        "optimizer": optimizer,
        "schedule": schedule,
        "precision": precision,
    }
    progress = resume(config, ranks, device, parts)
    order = Order(len(train_digits.labels), config, progress)
    batches = endless_batches(train_digits, order, device)
    feed = Feed(_calling_between_epochs(schedule.step, batches, order))

    def step() -> torch.Tensor:
        images, labels = next(feed)
        with precision.autocast():
            loss = nll_loss(forward(normalise(images)), labels)
        precision.update(loss, optimizer)
        return loss

    measured = train(step, config, order.steps_per_epoch, device, reporter, feed, progress)
    flops = report_model(model, lambda: loss_on_meta_device(config.batch_size), reporter)
    report_mfu(flops, measured, precision, device, reporter)
    report_minimum_bytes(model, optimizer, next(feed), reporter)
    reporter.result("accuracy", accuracy_percent(model, test_digits, normalise, device), unit="%")


def build_network() -> nn.Module:
    """Return the network: (batch, 1, 28, 28) to logarithms of probabilities (batch, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, CLASSES),
        nn.LogSoftmax(dim=1),
    )


def normalise(images: torch.Tensor) -> torch.Tensor:
    """Turn bytes (batch, 28, 28) into what the network expects: (batch, 1, 28, 28)."""
    return ((images.float() / 255 - MEAN) / DEVIATION).unsqueeze(1)


def loss_on_meta_device(batch_size: int) -> torch.Tensor:
    """Return the loss of a step on the meta device, where tensors have shapes but no values, to count its FLOPs."""
    with torch.device("meta"):
        images = torch.empty(batch_size, SIDE, SIDE, dtype=torch.uint8)
        labels = torch.empty(batch_size, dtype=torch.long)
        return nll_loss(build_network()(normalise(images)), labels)


def _calling_between_epochs(action: Callable[[], None], batches: Iterator[BatchT], order: Order) -> Iterator[BatchT]:
    yield from itertools.islice(batches, order.steps_to_next_epoch)
    while True:
        action()
        yield from itertools.islice(batches, order.steps_per_epoch)
