"""The networks: AlexNet, VGG-16, ResNet-18 and ResNet-50, with torchvision's names of weights and first weights.

AlexNet is that of Krizhevsky, 2014 ("One weird trick"), VGG-16 of Simonyan and Zisserman, 2014, the ResNets of He et
al., 2015. ResNet-50 is "v1.5": a bottleneck's stride is in its 3 × 3 convolution. All map images (batch, 3, side, side)
to scores (batch, classes).
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.nn.functional import relu

from gpuagent_workloads.suite.classification import VIT_PATCH

# Channels of VGG-16's convolutions; a pooling ends each block.
BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def alexnet(classes: int) -> nn.Module:
    """Return AlexNet; 61,100,840 parameters for 1000 classes."""
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


def vgg16(classes: int, *, swapped: bool = False) -> nn.Module:
    """Return VGG-16; 138,357,544 parameters for 1000 classes.

    With `swapped`, each ReLU that a pooling follows comes after it. Clipping negative values before or after taking the
    largest one gives equal outputs, but the swapped ReLU has a quarter of the work.
    """
    classifier = nn.Sequential(
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, classes),
    )
    features = nn.Sequential(*_vgg_features(swapped))
    pooling = nn.AdaptiveAvgPool2d(7)
    model = nn.Sequential(OrderedDict(features=features, avgpool=pooling, flatten=nn.Flatten(), classifier=classifier))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
            nn.init.zeros_(module.bias)
    return model


def _vgg_features(swapped: bool) -> Iterator[nn.Module]:
    channels_in = 3
    for block in BLOCKS:
        for channels in block[:-1]:
            yield from (nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU(inplace=True))
            channels_in = channels
        yield nn.Conv2d(channels_in, block[-1], 3, padding=1)
        ending = (nn.ReLU(inplace=True), nn.MaxPool2d(2))
        yield from reversed(ending) if swapped else ending
        channels_in = block[-1]


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
    """A stem, four stages of blocks, and a linear layer."""

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
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

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


LAYERS, WIDTH, HEADS, HIDDEN = 12, 768, 12, 3072

_NORM_EPS = 1e-6


class Vit(nn.Module):
    """A Transformer over patches; 86,567,656 parameters for 1000 classes and images of 224 pixels."""

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.conv_proj = nn.Conv2d(3, WIDTH, VIT_PATCH, VIT_PATCH)
        self.encoder = Encoder((side // VIT_PATCH) ** 2 + 1)
        head = nn.Linear(WIDTH, classes)
        self.heads = nn.Sequential(OrderedDict(head=head))
        nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / (3 * VIT_PATCH**2)))
        for weights in (self.conv_proj.bias, head.weight, head.bias):
            nn.init.zeros_(weights)  # type: ignore[arg-type]

    def forward(self, images_B3SS: torch.Tensor) -> torch.Tensor:
        """Return the scores, shape (B, classes)."""
        patches_BPD = self.conv_proj(images_B3SS).flatten(2).transpose(1, 2)
        tokens_BPD = torch.cat([self.class_token.expand(len(patches_BPD), -1, -1), patches_BPD], dim=1)
        scores: torch.Tensor = self.heads(self.encoder(tokens_BPD)[:, 0])
        return scores


class Encoder(nn.Module):
    """Positions, layers, and a last norm."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, WIDTH).normal_(std=0.02))
        self.layers = nn.Sequential(OrderedDict((f"encoder_layer_{number}", Layer()) for number in range(LAYERS)))
        self.ln = nn.LayerNorm(WIDTH, eps=_NORM_EPS)

    def forward(self, tokens_BPD: torch.Tensor) -> torch.Tensor:
        """Return the features of each token."""
        features_BPD: torch.Tensor = self.ln(self.layers(tokens_BPD + self.pos_embedding))
        return features_BPD


class Layer(nn.Module):
    """Attention, then a perceptron for each token; both add to their input."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, eps=_NORM_EPS)
        self.self_attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.ln_2 = nn.LayerNorm(WIDTH, eps=_NORM_EPS)
        # torchvision has two dropouts of zero here, which its names count.
        linear = (nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH))
        self.mlp = nn.Sequential(linear[0], nn.GELU(), nn.Identity(), linear[1])
        for one in linear:
            nn.init.xavier_uniform_(one.weight)
            nn.init.normal_(one.bias, std=1e-6)

    def forward(self, x_BPD: torch.Tensor) -> torch.Tensor:
        """Return the input of the next layer."""
        normed_BPD = self.ln_1(x_BPD)
        attended_BPD, _ = self.self_attention(normed_BPD, normed_BPD, normed_BPD, need_weights=False)
        x_BPD = x_BPD + attended_BPD
        mlp_BPD: torch.Tensor = self.mlp(self.ln_2(x_BPD))
        return x_BPD + mlp_BPD
