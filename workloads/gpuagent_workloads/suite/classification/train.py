"""Training of the image classification workloads.

Optimizer and normalisation are those of pytorch/examples, imagenet/main.py; ViT's optimizer is that of torchvision's
references, but only matrices decay. Learning rates are for batches of 256 and are scaled to others. Accuracy of the
training's batches is reported beside their loss. Only --test-images tests: the studies stop after 15 batches, where
accuracy means nothing.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.classification import ClassificationConfig, Vgg16Config, VitConfig
from gpuagent_workloads.suite.classification.networks import alexnet, resnet18, resnet50, vgg16
from gpuagent_workloads.suite.classification.sources import open_source
from gpuagent_workloads.suite.classification.vit import Vit
from gpuagent_workloads.training.adamw import make_adamw
from gpuagent_workloads.training.images import Normalisation, accuracies_of, hits, named_accuracies
from gpuagent_workloads.training.model import count_flops
from gpuagent_workloads.training.session import Session

# Of ImageNet's channels, on a scale from 0 to 1.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4

# The batch size that learning rates are given for.
LEARNING_RATE_BATCH_SIZE = 256

Build = Callable[[], nn.Module]


def train_resnet18(config: ClassificationConfig, reporter: Reporter) -> None:
    """Train ResNet-18."""
    train_classifier(lambda: resnet18(config.classes), 0.1, config, reporter)


def train_resnet50(config: ClassificationConfig, reporter: Reporter) -> None:
    """Train ResNet-50."""
    train_classifier(lambda: resnet50(config.classes), 0.1, config, reporter)


def train_alexnet(config: ClassificationConfig, reporter: Reporter) -> None:
    """Train AlexNet."""
    train_classifier(lambda: alexnet(config.classes), 0.01, config, reporter)


def train_vgg16(config: Vgg16Config, reporter: Reporter) -> None:
    """Train VGG-16."""
    train_classifier(lambda: vgg16(config.classes, swapped=config.order == "swapped"), 0.01, config, reporter)


def train_vit(config: VitConfig, reporter: Reporter) -> None:
    """Train ViT-B/16."""
    # 0.003 for batches of 4096.
    rate = 0.003 * LEARNING_RATE_BATCH_SIZE / 4096
    train_classifier(
        lambda: Vit(config.classes, config.image_size),
        rate,
        config,
        reporter,
        lambda model, scaled: make_adamw(model, scaled, (0.9, 0.999), 0.3),
    )


def make_sgd(model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Return the optimizer of the convolutional networks."""
    return torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


def train_classifier(
    build: Build,
    learning_rate: float,
    config: ClassificationConfig,
    reporter: Reporter,
    make_optimizer: Callable[[nn.Module, float], torch.optim.Optimizer] = make_sgd,
) -> None:
    """Train a network, (batch, 3, side, side) to scores (batch, classes).

    Args:
        build: returns the network with new weights.
        learning_rate: for batches of 256.
        config: how to train.
        reporter: where to report.
        make_optimizer: returns the optimizer, given the scaled learning rate.
    """
    source = open_source(config, reporter)
    session = Session(
        config,
        reporter,
        build,
        lambda model, ranks: make_optimizer(
            model, learning_rate * config.batch_size * ranks / LEARNING_RATE_BATCH_SIZE
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
        return named_accuracies(hits(**latest), len(latest["labels"]), prefix="train_")

    session.learn(loss, order.steps_per_epoch, source.batches(order, session.device), accuracies)
    session.report(count_flops(lambda: loss_on_meta_device(build, config.batch_size, config.image_size)))
    if config.test_images and reporter.rank == 0:
        for name, value in accuracies_of(session.model, source.test_batches(session.device), normalise).items():
            reporter.result(name, value.item(), unit="%")


def loss_on_meta_device(build: Build, batch_size: int, side: int) -> torch.Tensor:
    """Return the loss of a step on the meta device, where tensors have shapes but no values, to count its FLOPs."""
    with torch.device("meta"):
        images = torch.empty(batch_size, 3, side, side)
        labels = torch.empty(batch_size, dtype=torch.long)
        return cross_entropy(build()(images), labels)
