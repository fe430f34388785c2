"""Training of the bert workload.

The optimizer is Devlin et al.'s, AdamW with a constant learning rate. A sequence is a window of the token stream,
without a second sentence. Of its masked tokens, 80 % become the mask, 10 % another token, and 10 % stay.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.bert import Config
from gpuagent_workloads.suite.bert.model import Bert
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.model import StepFlops, count_flops, make_adamw
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.outline import LayerRow, outline
from gpuagent_workloads.training.session import Session
from gpuagent_workloads.training.tokens import Stream, load_tokens

LEARNING_RATE, BETAS, WEIGHT_DECAY = 1e-4, (0.9, 0.999), 0.01

# Tokens or their places, as torch takes them.
Places = npt.NDArray[np.int64]

# Of a synthetic stream.
SYNTHETIC_TOKENS = 1 << 20

# The token that stands for a masked one, as in BERT's vocabulary.
MASK = 103


def train(config: Config, reporter: Reporter) -> None:
    """Run the workload."""
    tokens = load_tokens(
        config.data,
        vocabulary=config.size.vocabulary,
        context=config.context,
        count=SYNTHETIC_TOKENS,
        seed=config.seed,
        reporter=reporter,
    )
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
        parts = [_mask(tokens[start : start + config.context].astype(np.int64), start, config) for start in starts]
        yield tuple(upload(np.stack(part), device) for part in zip(*parts, strict=True))


def step_flops(config: Config) -> StepFlops:
    """Return the counted floating-point operations of a step."""
    model, batch = _on_meta_device(config)
    return count_flops(lambda: model(*batch))


def layers(config: Config) -> list[LayerRow]:
    """Return the layers of the network, with its loss."""
    model, batch = _on_meta_device(config)
    return outline({"": model}, lambda: model(*batch))


def _mask(sequence: Places, start: int, config: Config) -> tuple[Places, Places, Places]:
    """Return the sequence with masks, their places, and the tokens that were there."""
    random = np.random.default_rng([config.seed, start])
    places = np.sort(random.permutation(config.context)[: config.masked])
    targets, kinds = sequence[places], random.random(config.masked)
    others = random.integers(0, config.size.vocabulary, config.masked)
    sequence[places] = np.where(kinds < 0.8, MASK, np.where(kinds < 0.9, others, targets))
    return sequence, places, targets


def _on_meta_device(config: Config) -> tuple[Bert, list[torch.Tensor]]:
    """Return the network and a batch, which have shapes but no values."""
    tokens, masked = (config.batch_size, config.context), (config.batch_size, config.masked)
    with torch.device("meta"):
        return Bert(config.size), [torch.empty(shape, dtype=torch.long) for shape in (tokens, masked, masked)]
