"""The networks of BigGAN-deep for 128 × 128 pixels (Brock et al. 2018, appendix B, table 7), built of BigGAN's layers.

Shapes as in `networks`: B images of a batch, C channels, H and W pixels, N features of the noise, D of the condition.
"""

import itertools

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, relu

from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.networks import (
    ATTENTION_AFTER,
    BLOCKS,
    CHANNELS,
    CLASS_FEATURES,
    DEEP_NOISE,
    FIRST_SIDE,
    ConditionalBatchNorm,
    Discriminator,
    Generator,
    SelfAttention,
    convolution,
    double_size,
    normalised,
)

# A block's inner convolutions have this part of its channels.
BOTTLENECK = 4

CONDITION = DEEP_NOISE + CLASS_FEATURES


def build_networks(config: Config) -> tuple[nn.Module, nn.Module]:
    """Return the generator, noise (B, N) and labels (B,) to images, and the discriminator, both to scores (B,)."""
    if config.deep:
        return DeepGenerator(config.channels, config.classes), DeepDiscriminator(config.channels, config.classes)
    return Generator(config.channels, config.classes), Discriminator(config.channels, config.classes)


class DeepGenerator(nn.Module):
    """A generator of two blocks for each size; the second doubles it."""

    def __init__(self, ch: int, classes: int) -> None:
        super().__init__()
        self.class_embedding = nn.Embedding(classes, CLASS_FEATURES)
        nn.init.orthogonal_(self.class_embedding.weight)
        self.first = normalised(nn.Linear(CONDITION, BLOCKS[0][0] * ch * FIRST_SIDE**2))
        self.blocks = nn.ModuleList()
        for taken, given in BLOCKS:
            self.blocks.append(DeepGeneratorBlock(taken * ch, taken * ch, doubles=False))
            self.blocks.append(DeepGeneratorBlock(taken * ch, given * ch, doubles=True))
        self.attention = SelfAttention(BLOCKS[ATTENTION_AFTER][1] * ch)
        self.norm = nn.BatchNorm2d(ch)
        self.last = convolution(ch, 3, 3)

    def forward(self, noise_BN: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        """Return images of shape (B, 3, 128, 128), from -1 to 1."""
        condition_BD = torch.cat([noise_BN, self.class_embedding(labels_B)], dim=1)
        x_BCHW = self.first(condition_BD).unflatten(1, (-1, FIRST_SIDE, FIRST_SIDE))
        for number, block in enumerate(self.blocks):
            x_BCHW = block(x_BCHW, condition_BD)
            if number == 2 * ATTENTION_AFTER + 1:
                x_BCHW = self.attention(x_BCHW)
        return torch.tanh(self.last(relu(self.norm(x_BCHW), inplace=True)))


class DeepGeneratorBlock(nn.Module):
    """Four convolutions that narrow and widen, beside the input; of that, surplus channels are dropped."""

    def __init__(self, channels_in: int, channels_out: int, *, doubles: bool) -> None:
        super().__init__()
        self.channels_out, self.doubles = channels_out, doubles
        inner = channels_in // BOTTLENECK
        self.norm1 = ConditionalBatchNorm(channels_in, CONDITION)
        self.conv1 = convolution(channels_in, inner, 1)
        self.norm2 = ConditionalBatchNorm(inner, CONDITION)
        self.conv2 = convolution(inner, inner, 3)
        self.norm3 = ConditionalBatchNorm(inner, CONDITION)
        self.conv3 = convolution(inner, inner, 3)
        self.norm4 = ConditionalBatchNorm(inner, CONDITION)
        self.conv4 = convolution(inner, channels_out, 1)

    def forward(self, x_BCHW: torch.Tensor, condition_BD: torch.Tensor) -> torch.Tensor:
        """Return images, of twice the size if this block doubles it."""
        inner = self.conv1(relu(self.norm1(x_BCHW, condition_BD), inplace=True))
        inner = self._enlarged(relu(self.norm2(inner, condition_BD), inplace=True))
        inner = self.conv3(relu(self.norm3(self.conv2(inner), condition_BD), inplace=True))
        inner = self.conv4(relu(self.norm4(inner, condition_BD), inplace=True))
        sum_BCHW: torch.Tensor = inner + self._enlarged(x_BCHW[:, : self.channels_out])
        return sum_BCHW

    def _enlarged(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        return double_size(x_BCHW) if self.doubles else x_BCHW


class DeepDiscriminator(nn.Module):
    """A discriminator of two blocks for each size; the first halves it."""

    def __init__(self, ch: int, classes: int) -> None:
        super().__init__()
        self.first = convolution(3, ch, 3)
        self.blocks = nn.Sequential()
        channels = [ch * factor for factor in CHANNELS]
        for taken, given in itertools.pairwise(channels):
            self.blocks.append(DeepDiscriminatorBlock(taken, given, halves=True))
            self.blocks.append(DeepDiscriminatorBlock(given, given, halves=False))
        # After the two blocks of 64 × 64 pixels.
        self.blocks.insert(2, SelfAttention(channels[1]))
        self.score = normalised(nn.Linear(channels[-1], 1))
        self.class_embedding = normalised(nn.Embedding(classes, channels[-1]))

    def forward(self, x_BCHW: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        """Return the scores (B,) of images (B, 3, 128, 128)."""
        features_BC = relu(self.blocks(self.first(x_BCHW))).sum(dim=(2, 3))
        class_scores_B = (self.class_embedding(labels_B) * features_BC).sum(dim=1)
        scores_B: torch.Tensor = self.score(features_BC).squeeze(1) + class_scores_B
        return scores_B


class DeepDiscriminatorBlock(nn.Module):
    """Four convolutions that narrow and widen, beside the input; to that, a convolution adds missing channels."""

    def __init__(self, channels_in: int, channels_out: int, *, halves: bool) -> None:
        super().__init__()
        self.halves = halves
        inner = channels_out // BOTTLENECK
        self.conv1 = convolution(channels_in, inner, 1)
        self.conv2 = convolution(inner, inner, 3)
        self.conv3 = convolution(inner, inner, 3)
        self.conv4 = convolution(inner, channels_out, 1)
        missing = channels_out - channels_in
        self.shortcut = convolution(channels_in, missing, 1) if missing else None

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return images, of half the size if this block halves it."""
        inner = self.conv2(relu(self.conv1(relu(x_BCHW)), inplace=True))
        inner = self._shrunk(relu(self.conv3(relu(inner, inplace=True)), inplace=True))
        x_BCHW = self._shrunk(x_BCHW)
        if self.shortcut:
            x_BCHW = torch.cat([x_BCHW, self.shortcut(x_BCHW)], dim=1)
        sum_BCHW: torch.Tensor = self.conv4(inner) + x_BCHW
        return sum_BCHW

    def _shrunk(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        return avg_pool2d(x_BCHW, 2) if self.halves else x_BCHW
