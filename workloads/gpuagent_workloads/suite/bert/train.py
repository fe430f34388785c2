"""The network of the bert workload (Devlin et al. 2019), with its loss of masked tokens, and its training.

Shapes: B sequences of a batch, L tokens of each, D features of a token, M masked tokens of a sequence.

The optimizer is Devlin et al.'s, AdamW with a constant learning rate. A sequence is a window of the token stream,
without a second sentence. Of its masked tokens, 80 % become the mask, 10 % another token, and 10 % stay.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, linear

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.bert import Config, Size
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.model import StepFlops, count_flops, make_adamw
from gpuagent_workloads.training.session import Order, Session
from gpuagent_workloads.training.tokens import Stream, load_tokens

LEARNING_RATE, BETAS, WEIGHT_DECAY = 1e-4, (0.9, 0.999), 0.01

# Tokens or their places, as torch takes them.
Places = npt.NDArray[np.int64]

# Of a synthetic stream.
SYNTHETIC_TOKENS = 1 << 20

# The token that stands for a masked one, as in BERT's vocabulary.
MASK = 103


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


def train(config: Config, reporter: Reporter) -> None:
    """Run the workload."""
    tokens = load_tokens(config, config.size.vocabulary, config.context, SYNTHETIC_TOKENS, reporter)
    reporter.result("model", config.model)
    session = Session(
        config,
        reporter,
        lambda: Bert(config.size),
        lambda model, _ranks: make_adamw(model, LEARNING_RATE, BETAS, WEIGHT_DECAY),
    )
    order = session.order(len(tokens.train) - config.context, drawn=True)
    steps_per_epoch = max(1, len(tokens.train) // (config.items_per_step * session.ranks.size))
    session.learn(session.forward, steps_per_epoch, batches_of(tokens.train, config, order, session.device))
    session.report(step_flops(config))


def batches_of(
    tokens: Stream, config: Config, order: Order, device: torch.device
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield tokens (B, L), masked places (B, M) and the tokens that were there (B, M), for each step of this rank.

    The place of a sequence in the stream decides its mask, so that it does not depend on the number of ranks.
    """
    for starts in order:
        # The sequence with masks, their places, and the tokens that were there.
        parts = []
        for start in starts:
            sequence = tokens[start : start + config.context].astype(np.int64)
            random = np.random.default_rng([config.seed, start])
            places = np.sort(random.permutation(config.context)[: config.masked])
            targets, kinds = sequence[places], random.random(config.masked)
            others = random.integers(0, config.size.vocabulary, config.masked)
            sequence[places] = np.where(kinds < 0.8, MASK, np.where(kinds < 0.9, others, targets))
            parts.append((sequence, places, targets))
        yield tuple(upload(np.stack(part), device) for part in zip(*parts, strict=True))


def step_flops(config: Config) -> StepFlops:
    """Return the counted floating-point operations of a step."""
    tokens, masked = (config.batch_size, config.context), (config.batch_size, config.masked)
    with torch.device("meta"):
        model = Bert(config.size)
        batch = [torch.empty(shape, dtype=torch.long) for shape in (tokens, masked, masked)]
    return count_flops(lambda: model(*batch))
