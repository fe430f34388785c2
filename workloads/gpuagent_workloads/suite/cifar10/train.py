"""Training of the CIFAR-10 workload; its options are `Config` in `__init__.py`.

Network, optimizer and normalisation are those of PyTorch's tutorial "Training a Classifier".
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gpuagent_workloads.data.cifar import CHANNELS, CLASSES, SIDE, read_cifar10
from gpuagent_workloads.data.images import make_images
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC, ImageTrainingConfig
from gpuagent_workloads.training.images import Normalisation, accuracy_percent
from gpuagent_workloads.training.model import count_network_flops
from gpuagent_workloads.training.session import Session, batches_in

MEAN = DEVIATION = (0.5, 0.5, 0.5)

LEARNING_RATE, MOMENTUM = 0.001, 0.9

SYNTHETIC_TRAIN, SYNTHETIC_TEST = 20_000, 2_000


def train_and_test(config: ImageTrainingConfig, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy."""
    if config.data != SYNTHETIC:
        reporter.result("data_source", f"CIFAR-10 in {config.data}")
        train_images, test_images = read_cifar10(Path(config.data))
    else:
        reporter.result("data_source", f"synthetic images, made from seed {config.seed}")
        random = np.random.default_rng(config.seed)
        images = make_images(SYNTHETIC_TRAIN + SYNTHETIC_TEST, CLASSES, SIDE, random)
        train_images, test_images = images.split(SYNTHETIC_TRAIN)
    session = Session(
        config,
        reporter,
        build_network,
        lambda model, _ranks: torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM),
    )
    normalise = Normalisation(MEAN, DEVIATION, session.device, channels_last=config.channels_last)
    order = session.order(len(train_images.labels))

    def loss(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(session.forward(normalise(images)), labels)

    batches = batches_in(order, train_images.images, train_images.labels.astype(np.int64), session.device)
    session.learn(loss, order.steps_per_epoch, batches)
    session.report(count_network_flops(build_network, config.batch_size, CHANNELS, SIDE, SIDE))
    reporter.result("accuracy", accuracy_percent(session.model, test_images, normalise, session.device), unit="%")


def build_network() -> nn.Module:
    """Return the network: (batch, 3, 32, 32) to scores (batch, 10)."""
    return nn.Sequential(
        nn.Conv2d(CHANNELS, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, CLASSES),
    )
