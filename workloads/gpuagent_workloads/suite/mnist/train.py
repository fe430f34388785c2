"""Training of the MNIST workload; its options are `Config` in `__init__.py`.

Network, optimizer, schedule and normalisation are those of pytorch/examples, mnist/main.py. An epoch's last samples
share a batch with the next one's first, so that all steps do the same work.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import nll_loss

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.mnist.data import CLASSES, SIDE, load_digits
from gpuagent_workloads.training.config import ImageTrainingConfig
from gpuagent_workloads.training.images import accuracy_percent
from gpuagent_workloads.training.model import count_network_flops
from gpuagent_workloads.training.session import Session, batches_in

# Of MNIST's pixels, on a scale from 0 to 1.
MEAN, DEVIATION = 0.1307, 0.3081

# The learning rate is multiplied by gamma after each epoch.
LEARNING_RATE, GAMMA = 1.0, 0.7


def train_and_test(config: ImageTrainingConfig, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy."""
    train_digits, test_digits = load_digits(config.data, config.seed, reporter)
    session = Session(
        config,
        reporter,
        build_network,
        lambda model, _ranks: torch.optim.Adadelta(model.parameters(), lr=LEARNING_RATE),
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=GAMMA),
    )
    order = session.order(len(train_digits.labels))

    def loss(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nll_loss(session.forward(normalise(images)), labels)

    batches = batches_in(order, train_digits.images, train_digits.labels.astype(np.int64), session.device)
    session.learn(loss, order.steps_per_epoch, batches)
    session.report(count_network_flops(build_network, config.batch_size, 1, SIDE, SIDE))
    reporter.result("accuracy", accuracy_percent(session.model, test_digits, normalise, session.device), unit="%")


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
