"""Training of the gpt workload.

The optimizer is nanoGPT's (AdamW), with a constant learning rate and without clipping. The sequences of a batch are
windows of the token stream at random places.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from gpuagent_workloads.data.tokens import read_tokens
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.gpt import Config
from gpuagent_workloads.suite.gpt.model import Gpt, step_flops
from gpuagent_workloads.training.config import SYNTHETIC
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.outline import LayerRow, outline
from gpuagent_workloads.training.progress import Progress
from gpuagent_workloads.training.session import Session

LEARNING_RATE, BETAS, WEIGHT_DECAY = 3e-4, (0.9, 0.95), 0.1

SYNTHETIC_SEQUENCES = 2_000
VALIDATION_BATCHES = 4

# The synthetic stream consists of phrases that come again and again, in random order: something to learn.
PHRASES, PHRASE_TOKENS = 64, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Streams of tokens, shape (count,)."""

    train: npt.NDArray[np.uint16]
    validation: npt.NDArray[np.uint16]


def train_and_validate(config: Config, reporter: Reporter) -> None:
    """Run the workload from its data to the loss on the held-back tokens."""
    tokens = load_tokens(config, reporter)
    session = Session(config, reporter, lambda: Gpt(config), _make_optimizer)
    order = session.order(len(tokens.train) - config.context, drawn=True)
    steps_per_epoch = max(1, len(tokens.train) // (config.items_per_step * session.ranks.size))
    batches = batches_of(tokens.train, config.context, order, session.device)
    session.learn(session.forward, steps_per_epoch, batches)
    session.report(step_flops(config))
    reporter.result("validation_loss", _validation_loss(session.model, tokens.validation, config, session.device))


def layers(config: Config) -> list[LayerRow]:
    """Return the layers of the network, with its loss."""
    with torch.device("meta"):
        model = Gpt(config)
        tokens_BL = torch.empty(config.batch_size, config.context, dtype=torch.long)
        return outline({"": model}, lambda: model(tokens_BL, tokens_BL))


def load_tokens(config: Config, reporter: Reporter) -> Tokens:
    """Return tokens to train on and held-back tokens, and report their source.

    Raises:
        DataError: a file is missing, damaged, too short or of another vocabulary.
    """
    if config.data != SYNTHETIC:
        reporter.result("data_source", f"tokens in {config.data}")
        train_tokens, held_back = (
            read_tokens(Path(config.data, name), config.vocabulary, config.context + 1)
            for name in ("train.bin", "val.bin")
        )
        return Tokens(train=train_tokens, validation=held_back)
    reporter.result("data_source", f"synthetic tokens, made from seed {config.seed}")
    count = SYNTHETIC_SEQUENCES * config.context + 1
    stream = make_tokens(2 * count, config.vocabulary, np.random.default_rng(config.seed))
    return Tokens(train=stream[:count], validation=stream[count:])


def make_tokens(count: int, vocabulary: int, random: np.random.Generator) -> npt.NDArray[np.uint16]:
    """Return `count` synthetic tokens below `vocabulary`."""
    phrases = random.integers(0, vocabulary, (PHRASES, PHRASE_TOKENS), dtype=np.uint16)
    return phrases[random.integers(0, PHRASES, math.ceil(count / PHRASE_TOKENS))].ravel()[:count]


def batches_of(
    tokens: npt.NDArray[np.uint16], context: int, order: Order, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield tokens and their successors, both of shape (B, L), for each step of this rank.

    Args:
        tokens: shape (count,).
        context: the length L of a sequence.
        order: of the first positions of sequences.
        device: where the training runs.
    """
    window = np.arange(context + 1)
    for starts in order:
        sequences = upload(tokens[np.array(starts)[:, np.newaxis] + window].astype(np.int64), device)
        yield sequences[:, :-1], sequences[:, 1:]


def _make_optimizer(model: nn.Module, _ranks: int) -> torch.optim.Optimizer:
    # Matrices decay, and nothing else.
    parameters = list(model.parameters())
    groups = [
        {"params": [weights for weights in parameters if weights.dim() >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [weights for weights in parameters if weights.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, fused=parameters[0].is_cuda)


def _validation_loss(model: nn.Module, tokens: npt.NDArray[np.uint16], config: Config, device: torch.device) -> float:
    """Return the mean loss over a few batches, in nats, computed in float32."""
    model.eval()
    order = Order(len(tokens) - config.context, config, Progress(), drawn=True)
    batches = batches_of(tokens, config.context, order, device)
    with torch.inference_mode():
        losses = [model(*next(batches)) for _ in range(VALIDATION_BATCHES)]
    return torch.stack(losses).mean().item()
