"""Training of the image classification workloads; its options are `Config` in `__init__.py`.

Optimizer and normalisation are those of pytorch/examples, imagenet/main.py; ViT's optimizer is that of torchvision's
references, but only matrices decay. Learning rates are for batches of 256 and are scaled to others. Accuracy of the
training's batches is reported beside their loss; nothing is tested: the studies stop after 15 batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.classification import ClassificationConfig, networks
from gpuagent_workloads.suite.classification.networks import Vit
from gpuagent_workloads.suite.classification.sources import open_source
from gpuagent_workloads.training.images import Normalisation, train_accuracies
from gpuagent_workloads.training.model import count_network_flops, make_adamw
from gpuagent_workloads.training.session import Session

# Of ImageNet's channels, on a scale from 0 to 1.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4

# The batch size that learning rates are given for.
LEARNING_RATE_BATCH_SIZE = 256


def make_sgd(model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Return the optimizer of the convolutional networks."""
    return torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network for large images, (batch, 3, side, side) to scores (batch, classes).

    Attributes:
        build: returns the network with new weights.
        learning_rate: for batches of 256.
        make_optimizer: returns the optimizer, given the scaled learning rate.
    """

    build: Callable[[Any], nn.Module]
    learning_rate: float
    make_optimizer: Callable[[nn.Module, float], torch.optim.Optimizer] = make_sgd

    def train(self, config: ClassificationConfig, reporter: Reporter) -> None:
        """Train the network."""

        def build() -> nn.Module:
            return self.build(config)

        source = open_source(config, reporter)
        session = Session(
            config,
            reporter,
            build,
            lambda model, ranks: self.make_optimizer(
                model, self.learning_rate * config.batch_size * ranks / LEARNING_RATE_BATCH_SIZE
            ),
        )
        normalise = Normalisation(MEAN, DEVIATION, session.device, channels_last=config.channels_last)
        order = session.order(len(source))

        latest: dict[str, torch.Tensor] = {}

        def loss(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            scores = session.forward(normalise(images))
            latest.update(scores=scores.detach(), labels=labels)
            return cross_entropy(scores, labels)

        def accuracies() -> dict[str, torch.Tensor]:
            return train_accuracies(**latest)

        session.learn(loss, order.steps_per_epoch, source.batches(order, session.device), accuracies)
        session.report(count_network_flops(build, config.batch_size, 3, config.image_size, config.image_size))


resnet18 = Network(build=lambda config: networks.resnet18(config.classes), learning_rate=0.1)
resnet50 = Network(build=lambda config: networks.resnet50(config.classes), learning_rate=0.1)
alexnet = Network(build=lambda config: networks.alexnet(config.classes), learning_rate=0.01)
vgg16 = Network(
    build=lambda config: networks.vgg16(config.classes, swapped=config.order == "swapped"), learning_rate=0.01
)
vit = Network(
    build=lambda config: Vit(config.classes, config.image_size),
    # 0.003 for batches of 4096.
    learning_rate=0.003 * LEARNING_RATE_BATCH_SIZE / 4096,
    make_optimizer=lambda model, rate: make_adamw(model, rate, (0.9, 0.999), 0.3),
)
