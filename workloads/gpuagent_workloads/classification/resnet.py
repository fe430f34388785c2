"""ResNet-18 and ResNet-50 (He et al., 2015), as torchvision has them: its names of weights, its first weights.

ResNet-50 is "v1.5": a bottleneck's stride is in its 3 × 3 convolution.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import relu


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(channels_in, channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels, 3)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = _shortcut(channels_in, channels, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        y = relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.downsample(x)
        return relu(y, inplace=True)


class Bottleneck(nn.Module):
    """A 3 × 3 convolution between two of 1 × 1 that narrow and widen, beside a shortcut."""

    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        channels_out = self.expansion * channels
        self.conv1 = _convolution(channels_in, channels, 1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = _convolution(channels, channels_out, 1)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.downsample = _shortcut(channels_in, channels_out, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        y = relu(self.bn1(self.conv1(x)), inplace=True)
        y = relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += self.downsample(x)
        return relu(y, inplace=True)


class ResNet(nn.Module):
    """A stem, four stages of blocks, and a linear layer: (batch, 3, side, side) to scores (batch, classes)."""

    def __init__(self, block: type[BasicBlock | Bottleneck], blocks: Sequence[int], classes: int) -> None:
        super().__init__()
        self.conv1 = _convolution(3, 64, 7, 2)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(block, 64, 64, blocks[0], stride=1)
        self.layer2 = _stage(block, 64 * block.expansion, 128, blocks[1], stride=2)
        self.layer3 = _stage(block, 128 * block.expansion, 256, blocks[2], stride=2)
        self.layer4 = _stage(block, 256 * block.expansion, 512, blocks[3], stride=2)
        self.fc = nn.Linear(512 * block.expansion, classes)
        _initialise(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        x = self.maxpool(relu(self.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: torch.Tensor = self.fc(x.mean(dim=(2, 3)))
        return scores


def resnet18(classes: int) -> nn.Module:
    """Return ResNet-18; 11,689,512 parameters for 1000 classes."""
    return ResNet(BasicBlock, (2, 2, 2, 2), classes)


def resnet50(classes: int) -> nn.Module:
    """Return ResNet-50; 25,557,032 parameters for 1000 classes."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes)


def _stage(
    block: type[BasicBlock | Bottleneck], channels_in: int, channels: int, count: int, stride: int
) -> nn.Sequential:
    channels_out = block.expansion * channels
    others = (block(channels_out, channels, 1) for _ in range(count - 1))
    return nn.Sequential(block(channels_in, channels, stride), *others)


def _convolution(channels_in: int, channels_out: int, side: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, side, stride, padding=side // 2, bias=False)


def _shortcut(channels_in: int, channels_out: int, stride: int) -> nn.Module:
    if stride == 1 and channels_in == channels_out:
        return nn.Identity()
    return nn.Sequential(_convolution(channels_in, channels_out, 1, stride), nn.BatchNorm2d(channels_out))


def _initialise(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
