"""The training of the MNIST workload.

Network, optimizer, schedule and normalisation are those of pytorch/examples, mnist/main.py. The last, smaller batch of
an epoch is left out, so that all steps do the same work.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn
from torch.nn.functional import nll_loss

from gpuagent_workloads.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.mnist.data import CLASSES, Digits, load_digits
from gpuagent_workloads.suite.mnist.synthetic import SIDE
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.loop import train
from gpuagent_workloads.training.model import report_model
from gpuagent_workloads.training.setup import set_up

MEAN, DEVIATION = 0.1307, 0.3081
"""Of MNIST's pixels, on a scale from 0 to 1."""

LEARNING_RATE, GAMMA = 1.0, 0.7
"""The learning rate is multiplied by gamma after each epoch."""

TEST_BATCH_SIZE = 1000


def train_and_test(config: TrainingConfig, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy."""
    train_digits, test_digits = load_digits(config.data, config.seed, reporter)
    steps_per_epoch = len(train_digits.labels) // config.batch_size
    if steps_per_epoch == 0:
        raise MisuseError(
            f"--batch-size {config.batch_size} is more than the {len(train_digits.labels)} training images"
        )

    reporter.phase("setup")
    device, precision = set_up(config, reporter)
    model = build_network().to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=GAMMA)
    batches = _endless_batches(train_digits, config, device, at_epoch_end=schedule.step)

    def step() -> torch.Tensor:
        images, labels = next(batches)
        with precision.autocast():
            loss = nll_loss(model(normalise(images)), labels)
        precision.update(loss, optimizer)
        return loss

    train(step, config, steps_per_epoch, device, reporter)
    report_model(model, lambda: loss_on_meta_device(config.batch_size), reporter)
    reporter.result("accuracy", _accuracy_percent(model, test_digits, device), unit="%")


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


def _endless_batches(
    digits: Digits, config: TrainingConfig, device: torch.device, at_epoch_end: Callable[[], None]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield images and labels for one step after the other, each epoch in another order."""
    labels = digits.labels.astype(np.int64)
    random = np.random.default_rng(config.seed)
    complete = len(labels) - len(labels) % config.batch_size
    while True:
        for chosen in random.permutation(len(labels))[:complete].reshape(-1, config.batch_size):
            yield upload(digits.images[chosen], device), upload(labels[chosen], device)
        at_epoch_end()


def _accuracy_percent(model: nn.Module, digits: Digits, device: torch.device) -> float:
    images, labels = torch.from_numpy(digits.images), torch.from_numpy(digits.labels)
    model.eval()
    with torch.inference_mode():
        guesses = [model(normalise(some.to(device))).argmax(dim=1).cpu() for some in images.split(TEST_BATCH_SIZE)]
    return 100 * (torch.cat(guesses) == labels).double().mean().item()
