"""BigGAN's generator for 128 × 128 pixels (Brock et al. 2018, appendix B, table 4).

Shapes: B images of a batch, C channels, H and W pixels on the sides of an image, N features of the noise, D features of
the condition.
"""

import torch
from torch import nn
from torch.nn.functional import interpolate, relu

from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.layers import ConditionalBatchNorm, SelfAttention, convolution, normalised

# Pixels on each side of an image.
SIDE = 128

FIRST_SIDE = 4

# Channels that blocks take and give, in units of `ch`; each doubles the size.
BLOCKS = ((16, 16), (16, 8), (8, 4), (4, 2), (2, 1))

# The block, from 0, after which images have 64 × 64 pixels.
ATTENTION_AFTER = 3

CLASS_FEATURES = 128

# Features of the noise that the first layer is given, and other ones each block.
CHUNK = 20

NOISE = CHUNK * (1 + len(BLOCKS))


class Generator(nn.Module):
    """Makes images of given classes out of noise."""

    def __init__(self, ch: int, classes: int) -> None:
        """Build it.

        Args:
            ch: channels of the last block.
            classes: how many there are.
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
        self.norm1 = ConditionalBatchNorm(channels_in, CLASS_FEATURES + CHUNK)
        self.conv1 = convolution(channels_in, channels_out, 3)
        self.norm2 = ConditionalBatchNorm(channels_out, CLASS_FEATURES + CHUNK)
        self.conv2 = convolution(channels_out, channels_out, 3)
        self.shortcut = convolution(channels_in, channels_out, 1)

    def forward(self, x_BCHW: torch.Tensor, condition_BD: torch.Tensor) -> torch.Tensor:
        """Return images of twice the size."""
        inner = relu(self.norm1(x_BCHW, condition_BD), inplace=True)
        inner = self.conv1(_doubled(inner))
        inner = self.conv2(relu(self.norm2(inner, condition_BD), inplace=True))
        doubled_BCHW: torch.Tensor = self.shortcut(_doubled(x_BCHW)) + inner
        return doubled_BCHW


def draw(config: Config, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noise (B, N) for a batch, and classes (B,) to make images of."""
    noise_BN = torch.randn(config.batch_size, NOISE, device=device)
    return noise_BN, torch.randint(config.classes, (config.batch_size,), device=device)


def _doubled(x_BCHW: torch.Tensor) -> torch.Tensor:
    return interpolate(x_BCHW, scale_factor=2.0)
