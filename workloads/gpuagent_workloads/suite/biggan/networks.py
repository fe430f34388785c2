"""BigGAN's networks for 128 × 128 pixels (Brock et al. 2018, appendix B, table 4), and their layers.

Shapes: B images of a batch, C channels, H and W pixels on the sides of an image, N features of the noise, D features of
the condition; Q places of an image that attend, which are all of its pixels, K places that they attend to.
"""

from typing import TypeVar

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, interpolate, max_pool2d, relu, softmax
from torch.nn.utils.parametrizations import spectral_norm

from gpuagent_workloads.suite.biggan import Config

# Pixels on each side of an image.
SIDE = 128

FIRST_SIDE = 4

# Channels of the generator's blocks, in and out, in units of `ch`; each doubles the size.
BLOCKS = ((16, 16), (16, 8), (8, 4), (4, 2), (2, 1))

# The block, from 0, after which images have 64 × 64 pixels.
ATTENTION_AFTER = 3

CLASS_FEATURES = 128

# Features of the noise for the first layer, and others for each block.
CHUNK = 20

NOISE = CHUNK * (1 + len(BLOCKS))

# Channels out of the discriminator's blocks, in units of `ch`; each but the last halves the size.
CHANNELS = (1, 2, 4, 8, 16, 16)

# The least norm that spectral normalisation divides by, as in the reference's scripts for BigGAN.
EPSILON = 1e-6

LayerT = TypeVar("LayerT", nn.Conv2d, nn.Linear, nn.Embedding)


def normalised(layer: LayerT) -> LayerT:
    """Return `layer` with orthogonal weights, which each use divides by their largest singular value.

    One power iteration estimates that value anew each time. Weights of the meta device have no values: there the layer
    stays as it is, since the 15 iterations at the start of each layer would take 10 s of Python for a network.
    """
    if not layer.weight.is_meta:
        nn.init.orthogonal_(layer.weight)
        spectral_norm(layer, eps=EPSILON)
    return layer


def convolution(channels_in: int, channels_out: int, kernel: int, *, bias: bool = True) -> nn.Conv2d:
    """Return a convolution that keeps the size of its images."""
    return normalised(nn.Conv2d(channels_in, channels_out, kernel, padding=kernel // 2, bias=bias))


class ConditionalBatchNorm(nn.Module):
    """Batch normalisation whose gain and bias depend on the condition."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.gain = normalised(nn.Linear(CLASS_FEATURES + CHUNK, channels, bias=False))
        self.bias = normalised(nn.Linear(CLASS_FEATURES + CHUNK, channels, bias=False))

    def forward(self, x_BCHW: torch.Tensor, condition_BD: torch.Tensor) -> torch.Tensor:
        """Return images of the same shape."""
        gain_BC11 = 1 + self.gain(condition_BD)[:, :, None, None]
        bias_BC11 = self.bias(condition_BD)[:, :, None, None]
        return torch.addcmul(bias_BC11, self.norm(x_BCHW), gain_BC11)


class SelfAttention(nn.Module):
    """Self-attention between the pixels of an image, as in SAGAN (Zhang et al. 2018).

    It is written out, as in the reference, so that it is the same work on each device with or without fused attention.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.query = convolution(channels, channels // 8, 1, bias=False)
        self.key = convolution(channels, channels // 8, 1, bias=False)
        self.value = convolution(channels, channels // 2, 1, bias=False)
        self.project = convolution(channels // 2, channels, 1, bias=False)
        self.gain = nn.Parameter(torch.zeros(()))

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return images of the same shape."""
        query_BCQ = self.query(x_BCHW).flatten(2)
        key_BCK = max_pool2d(self.key(x_BCHW), 2).flatten(2)
        value_BCK = max_pool2d(self.value(x_BCHW), 2).flatten(2)
        share_BQK = softmax(query_BCQ.transpose(1, 2) @ key_BCK, dim=2)
        # The shares are by far the largest tensor; in this order neither they nor their gradients are ever transposed.
        taken_BCQ = (share_BQK @ value_BCK.transpose(1, 2)).transpose(1, 2)
        projected_BCHW: torch.Tensor = self.project(taken_BCQ.unflatten(2, x_BCHW.shape[2:]))
        return x_BCHW + self.gain * projected_BCHW


class Generator(nn.Module):
    """A network that makes images of given classes from noise."""

    def __init__(self, ch: int, classes: int) -> None:
        """Build it.

        Args:
            ch: channels of the last block.
        """
        super().__init__()
        self.class_embedding = nn.Embedding(classes, CLASS_FEATURES)
        nn.init.orthogonal_(self.class_embedding.weight)
        self.first = normalised(nn.Linear(CHUNK, BLOCKS[0][0] * ch * FIRST_SIDE**2))
        self.blocks = nn.ModuleList(GeneratorBlock(taken * ch, given * ch) for taken, given in BLOCKS)
        self.attention = SelfAttention(BLOCKS[ATTENTION_AFTER][1] * ch)
        self.norm = nn.BatchNorm2d(ch)
        self.last = convolution(ch, 3, 3)

    def forward(self, noise_BN: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        """Return images of shape (B, 3, 128, 128), from -1 to 1."""
        first_noise, *noises = noise_BN.chunk(1 + len(BLOCKS), dim=1)
        class_features = self.class_embedding(labels_B)
        x_BCHW = self.first(first_noise).unflatten(1, (-1, FIRST_SIDE, FIRST_SIDE))
        for number, (block, noise) in enumerate(zip(self.blocks, noises, strict=True)):
            x_BCHW = block(x_BCHW, torch.cat([class_features, noise], dim=1))
            if number == ATTENTION_AFTER:
                x_BCHW = self.attention(x_BCHW)
        return torch.tanh(self.last(relu(self.norm(x_BCHW), inplace=True)))


class GeneratorBlock(nn.Module):
    """Two convolutions beside a shortcut, at twice the size of what comes in."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.norm1 = ConditionalBatchNorm(channels_in)
        self.conv1 = convolution(channels_in, channels_out, 3)
        self.norm2 = ConditionalBatchNorm(channels_out)
        self.conv2 = convolution(channels_out, channels_out, 3)
        self.shortcut = convolution(channels_in, channels_out, 1)

    def forward(self, x_BCHW: torch.Tensor, condition_BD: torch.Tensor) -> torch.Tensor:
        """Return images of twice the size."""
        inner = relu(self.norm1(x_BCHW, condition_BD), inplace=True)
        inner = self.conv1(double_size(inner))
        inner = self.conv2(relu(self.norm2(inner, condition_BD), inplace=True))
        doubled_BCHW: torch.Tensor = self.shortcut(double_size(x_BCHW)) + inner
        return doubled_BCHW


def build_networks(config: Config) -> tuple["Generator", "Discriminator"]:
    """Return the generator, noise (B, N) and labels (B,) to images, and the discriminator, both to scores (B,)."""
    return Generator(config.ch, config.classes), Discriminator(config.ch, config.classes)


def draw(config: Config, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noise (B, N) for a batch, and classes (B,) to make images of."""
    noise_BN = torch.randn(config.batch_size, NOISE, device=device)
    return noise_BN, torch.randint(config.classes, (config.batch_size,), device=device)


def double_size(x_BCHW: torch.Tensor) -> torch.Tensor:
    """Return images of twice the size, each pixel repeated."""
    return interpolate(x_BCHW, scale_factor=2.0)


class Discriminator(nn.Module):
    """A network whose score is higher the more an image looks like a real one of its class."""

    def __init__(self, ch: int, classes: int) -> None:
        """Build it.

        Args:
            ch: channels of the first block.
        """
        super().__init__()
        channels = [3, *(ch * factor for factor in CHANNELS)]
        last = len(CHANNELS) - 1
        self.blocks = nn.Sequential(
            *(
                DiscriminatorBlock(channels[number], channels[number + 1], is_first=number == 0, halves=number != last)
                for number in range(len(CHANNELS))
            )
        )
        # After the first block, where images have 64 × 64 pixels.
        self.blocks.insert(1, SelfAttention(ch))
        self.score = normalised(nn.Linear(channels[-1], 1))
        self.class_embedding = normalised(nn.Embedding(classes, channels[-1]))

    def forward(self, x_BCHW: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        """Return the scores (B,) of images (B, 3, 128, 128)."""
        features_BC = relu(self.blocks(x_BCHW)).sum(dim=(2, 3))
        # The projection of Miyato and Koyama 2018.
        class_scores_B = (self.class_embedding(labels_B) * features_BC).sum(dim=1)
        scores_B: torch.Tensor = self.score(features_BC).squeeze(1) + class_scores_B
        return scores_B


class DiscriminatorBlock(nn.Module):
    """Two convolutions beside a shortcut, which is a convolution only where channels or size change."""

    def __init__(self, channels_in: int, channels_out: int, *, is_first: bool, halves: bool) -> None:
        super().__init__()
        self.is_first, self.halves = is_first, halves
        self.conv1 = convolution(channels_in, channels_out, 3)
        self.conv2 = convolution(channels_out, channels_out, 3)
        changes = halves or channels_in != channels_out
        self.shortcut = convolution(channels_in, channels_out, 1) if changes else nn.Identity()

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return images, of half the size if this block halves it."""
        inner = self.conv1(x_BCHW if self.is_first else relu(x_BCHW))
        inner = self._shrunk(self.conv2(relu(inner, inplace=True)))
        # The two orders give the same; the first block's, from the reference, is less work.
        shortcut = self.shortcut(self._shrunk(x_BCHW)) if self.is_first else self._shrunk(self.shortcut(x_BCHW))
        return inner + shortcut

    def _shrunk(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        return avg_pool2d(x_BCHW, 2) if self.halves else x_BCHW
