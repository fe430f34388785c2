"""BigGAN's discriminator for 128 × 128 pixels (Brock et al. 2018, appendix B, table 4).

Shapes: B images of a batch, C channels, H and W pixels on the sides of an image.
"""

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, relu

from gpuagent_workloads.suite.biggan.layers import SelfAttention, convolution, normalised

# That blocks give, in units of `ch`; each but the last halves the size.
CHANNELS = (1, 2, 4, 8, 16, 16)


class Discriminator(nn.Module):
    """Scores how much images look like real ones of their classes; the higher, the more."""

    def __init__(self, ch: int, classes: int) -> None:
        """Build it.

        Args:
            ch: channels of the first block.
            classes: how many there are.
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
