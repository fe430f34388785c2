"""AlexNet (Krizhevsky, 2014: "One weird trick"), as torchvision has it, with its names of weights."""

from collections import OrderedDict

from torch import nn


def alexnet(classes: int) -> nn.Module:
    """Return AlexNet, (batch, 3, side, side) to scores (batch, classes); 61,100,840 parameters for 1000 classes."""
    features = nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
    )
    classifier = nn.Sequential(
        nn.Dropout(0.5),
        nn.Linear(256 * 6 * 6, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, classes),
    )
    pooling = nn.AdaptiveAvgPool2d(6)
    return nn.Sequential(OrderedDict(features=features, avgpool=pooling, flatten=nn.Flatten(), classifier=classifier))
