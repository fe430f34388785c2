"""The layers of each network for large images."""

import torch

from gpuagent_workloads.suite.classification import ClassificationConfig, Vgg16Config, VitConfig, networks
from gpuagent_workloads.suite.classification.train import Build
from gpuagent_workloads.suite.classification.vit import Vit
from gpuagent_workloads.training.outline import LayerRow, outline


def resnet18(config: ClassificationConfig) -> list[LayerRow]:
    """Return the layers of ResNet-18."""
    return _outline(lambda: networks.resnet18(config.classes), config)


def resnet50(config: ClassificationConfig) -> list[LayerRow]:
    """Return the layers of ResNet-50."""
    return _outline(lambda: networks.resnet50(config.classes), config)


def alexnet(config: ClassificationConfig) -> list[LayerRow]:
    """Return the layers of AlexNet."""
    return _outline(lambda: networks.alexnet(config.classes), config)


def vgg16(config: Vgg16Config) -> list[LayerRow]:
    """Return the layers of VGG-16."""
    return _outline(lambda: networks.vgg16(config.classes, swapped=config.order == "swapped"), config)


def vit(config: VitConfig) -> list[LayerRow]:
    """Return the layers of ViT-B/16."""
    return _outline(lambda: Vit(config.classes, config.image_size), config)


def _outline(build: Build, config: ClassificationConfig) -> list[LayerRow]:
    with torch.device("meta"):
        model = build()
        images = torch.empty(config.batch_size, 3, config.image_size, config.image_size)
    return outline({"": model}, lambda: model(images))
