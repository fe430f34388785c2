"""The network of the bert workload (Devlin et al. 2019), with its loss of masked tokens.

Shapes: B sequences of a batch, L tokens of each, D features of a token, M masked tokens of a sequence.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, linear

from gpuagent_workloads.suite.bert import Size

# Positions that the network knows, and kinds of sentences, of which only the first is used.
CONTEXT, SEGMENTS = 512, 2

_INITIAL_DEVIATION, _NORM_EPS, _DROPOUT = 0.02, 1e-12, 0.1


class Bert(nn.Module):
    """An encoder-only Transformer; its embedding is also its output layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(CONTEXT, size.width)
        self.segments = nn.Embedding(SEGMENTS, size.width)
        self.norm = nn.LayerNorm(size.width, eps=_NORM_EPS)
        self.dropout = nn.Dropout(_DROPOUT)
        layer = nn.TransformerEncoderLayer(
            size.width, size.heads, 4 * size.width, _DROPOUT, "gelu", layer_norm_eps=_NORM_EPS, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False)
        self.transform = nn.Linear(size.width, size.width)
        self.transform_norm = nn.LayerNorm(size.width, eps=_NORM_EPS)
        self.output_bias = nn.Parameter(torch.zeros(size.vocabulary))
        for name, weights in self.named_parameters():
            if weights.dim() >= 2:
                nn.init.normal_(weights, std=_INITIAL_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(weights)

    def forward(self, tokens_BL: torch.Tensor, places_BM: torch.Tensor, targets_BM: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, in nats, of the tokens that were at the masked places."""
        places_L = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
        x_BLD = self.tokens(tokens_BL) + self.positions(places_L) + self.segments.weight[0]
        x_BLD = self.encoder(self.dropout(self.norm(x_BLD)))
        masked_BMD = x_BLD.gather(1, places_BM.unsqueeze(2).expand(-1, -1, x_BLD.shape[2]))
        masked_BMD = self.transform_norm(gelu(self.transform(masked_BMD)))
        scores_BMV = linear(masked_BMD, self.tokens.weight, self.output_bias)
        return cross_entropy(scores_BMV.flatten(0, 1), targets_BM.flatten())
