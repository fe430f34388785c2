"""Streams of tokens for language models: read or synthetic, and their batches.

Files have a number below 65,536 for each token in two bytes, the lower first, as in nanoGPT.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from gpuagent_workloads.errors import DataError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC, TrainingConfig
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.session import Order

TOKEN = np.dtype("<u2")


_CHUNK_TOKENS = 1 << 24


def read_tokens(path: Path, vocabulary: int, at_least: int) -> npt.NDArray[np.uint16]:
    """Return the tokens of a file, shape (tokens,), mapped into memory, so that the file may be larger than memory.

    It is read once in full, since a token outside the vocabulary would crash a GPU's kernel in mid-run.

    Args:
        vocabulary: the number of different tokens; the greatest is one less.
        at_least: the least number of tokens in the file.

    Raises:
        DataError: the file cannot be read, is too short, or holds half a token or one outside the vocabulary.
    """
    try:
        # Only regular files: opening a named pipe would wait for ever.
        if not path.is_file():
            raise DataError(f"{path} is not a file")
        size_bytes = path.stat().st_size
        if size_bytes == 0 or size_bytes % TOKEN.itemsize:
            raise DataError(f"{path} has {size_bytes} bytes, not tokens of two bytes: is it truncated?")
        tokens = np.memmap(path, dtype=TOKEN, mode="r")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if len(tokens) < at_least:
        raise DataError(f"{path} holds {len(tokens)} tokens; with this --context it must hold {at_least}")
    greatest = max(int(tokens[i : i + _CHUNK_TOKENS].max()) for i in range(0, len(tokens), _CHUNK_TOKENS))
    if greatest >= vocabulary:
        raise DataError(
            f"{path} has a token {greatest}, and the model a vocabulary of {vocabulary}: "
            "choose a larger one, or encode the text with another tokenizer"
        )
    return tokens


# The synthetic stream consists of phrases that come again and again, in random order: something to learn.
PHRASES, PHRASE_TOKENS = 64, 16

Stream = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Streams of tokens, shape (count,)."""

    train: Stream
    validation: Stream


def load_tokens(config: TrainingConfig, vocabulary: int, context: int, count: int, reporter: Reporter) -> Tokens:
    """Return tokens to train on and held-back tokens, and report their source.

    Args:
        config: its data is a directory with train.bin and val.bin, or synthetic.
        vocabulary: number of different tokens.
        context: tokens of a sequence; each stream has at least one more.
        count: synthetic tokens of each stream.

    Raises:
        DataError: a file is missing, damaged, too short or of another vocabulary.
    """
    if config.data != SYNTHETIC:
        reporter.result("data_source", f"tokens in {config.data}")
        train_tokens, held_back = (
            read_tokens(Path(config.data, name), vocabulary, context + 1) for name in ("train.bin", "val.bin")
        )
        return Tokens(train=train_tokens, validation=held_back)
    reporter.result("data_source", f"synthetic tokens, made from seed {config.seed}")
    stream = make_tokens(2 * count, vocabulary, np.random.default_rng(config.seed))
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
    """
    window = np.arange(context + 1)
    for starts in order:
        sequences = upload(tokens[np.array(starts)[:, np.newaxis] + window].astype(np.int64), device)
        yield sequences[:, :-1], sequences[:, 1:]
