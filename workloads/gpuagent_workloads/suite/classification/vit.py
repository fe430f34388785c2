"""The Vision Transformer ViT-B/16 (Dosovitskiy et al. 2020), with torchvision's names of weights and first weights.

Shapes: B images of a batch, S pixels on a side, P patches and the class token before them, D features of a token.
"""

import math
from collections import OrderedDict

import torch
from torch import nn

from gpuagent_workloads.suite.classification import VIT_PATCH

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
