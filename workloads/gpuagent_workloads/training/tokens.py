"""Streams of tokens for language models: read or synthetic, and their batches."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from gpuagent_workloads.data.tokens import read_tokens
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.order import Order

# The synthetic stream consists of phrases that come again and again, in random order: something to learn.
PHRASES, PHRASE_TOKENS = 64, 16

Stream = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Streams of tokens, shape (count,)."""

    train: Stream
    validation: Stream


def load_tokens(data: str, *, vocabulary: int, context: int, count: int, seed: int, reporter: Reporter) -> Tokens:
    """Return tokens to train on and held-back tokens, and report their source.

    Args:
        data: directory with train.bin and val.bin, or synthetic.
        vocabulary: number of different tokens.
        context: tokens of a sequence; each stream has at least one more.
        count: synthetic tokens of each stream.
        seed: of the synthetic ones.
        reporter: where to report.

    Raises:
        DataError: a file is missing, damaged, too short or of another vocabulary.
    """
    if data != SYNTHETIC:
        reporter.result("data_source", f"tokens in {data}")
        train_tokens, held_back = (
            read_tokens(Path(data, name), vocabulary, context + 1) for name in ("train.bin", "val.bin")
        )
        return Tokens(train=train_tokens, validation=held_back)
    reporter.result("data_source", f"synthetic tokens, made from seed {seed}")
    stream = make_tokens(2 * count, vocabulary, np.random.default_rng(seed))
    return Tokens(train=stream[:count], validation=stream[count:])


def make_tokens(count: int, vocabulary: int, random: np.random.Generator) -> Stream:
    """Return `count` synthetic tokens below `vocabulary`, in two bytes each where that is enough."""
    dtype: type[np.unsignedinteger] = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    phrases = random.integers(0, vocabulary, (PHRASES, PHRASE_TOKENS), dtype=dtype)
    return phrases[random.integers(0, PHRASES, math.ceil(count / PHRASE_TOKENS))].ravel()[:count]


def batches_of(
    tokens: Stream, context: int, order: Order, device: torch.device
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
