"""The layers that both networks of BigGAN are made of.

Shapes: B images of a batch, C channels, H and W pixels on the sides of an image, D features of the condition; Q places
of an image that look for something, which is all of its pixels, K places where it may be found.
"""

from typing import TypeVar

import torch
from torch import nn
from torch.nn.functional import max_pool2d, softmax
from torch.nn.utils.parametrizations import spectral_norm

# The least norm that spectral normalisation divides by, as in the reference's scripts for BigGAN.
EPSILON = 1e-6

LayerT = TypeVar("LayerT", nn.Conv2d, nn.Linear, nn.Embedding)


def normalised(layer: LayerT) -> LayerT:
    """Return `layer` with orthogonal weights, which are divided by their largest singular value whenever it is used.

    That is estimated anew each time, by one power iteration.
    """
    nn.init.orthogonal_(layer.weight)
    spectral_norm(layer, eps=EPSILON)
    return layer


def convolution(channels_in: int, channels_out: int, kernel: int, *, bias: bool = True) -> nn.Conv2d:
    """Return a convolution that keeps the size of its images."""
    return normalised(nn.Conv2d(channels_in, channels_out, kernel, padding=kernel // 2, bias=bias))


class ConditionalBatchNorm(nn.Module):
    """Batch normalisation whose gain and bias depend on the condition."""

    def __init__(self, channels: int, condition: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.gain = normalised(nn.Linear(condition, channels, bias=False))
        self.bias = normalised(nn.Linear(condition, channels, bias=False))

    def forward(self, x_BCHW: torch.Tensor, condition_BD: torch.Tensor) -> torch.Tensor:
        """Return images of the same shape."""
        gain_BC11 = 1 + self.gain(condition_BD)[:, :, None, None]
        bias_BC11 = self.bias(condition_BD)[:, :, None, None]
        return torch.addcmul(bias_BC11, self.norm(x_BCHW), gain_BC11)


class SelfAttention(nn.Module):
    """Adds to each pixel what it takes from all others, as in SAGAN (Zhang et al. 2018).

    It is written out, as in the reference, so that it is the same work on each device, whichever fused attention that
    may have.
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
