"""The reader of token files: a number below 65,536 for each token in two bytes, the lower first, as in nanoGPT."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.errors import DataError

TOKEN = np.dtype("<u2")

MAX_VOCABULARY = 1 << 16

_CHUNK_TOKENS = 1 << 24


def read_tokens(path: Path, vocabulary: int, at_least: int) -> npt.NDArray[np.uint16]:
    """Return the tokens of a file, shape (tokens,), mapped into memory, so that the file may be larger than memory.

    It is read once in full, since a token outside the vocabulary would crash a GPU's kernel in mid-run.

    Args:
        path: the file.
        vocabulary: the number of different tokens; the greatest is one less.
        at_least: the least number of tokens in the file.

    Raises:
        DataError: the file cannot be read, is too short, or holds half a token or one outside the vocabulary.
    """
    tokens = _map(path)
    if len(tokens) < at_least:
        raise DataError(f"{path} holds {len(tokens)} tokens; with this --context it must hold {at_least}")
    greatest = max(int(tokens[i : i + _CHUNK_TOKENS].max()) for i in range(0, len(tokens), _CHUNK_TOKENS))
    if greatest >= vocabulary:
        raise DataError(
            f"{path} has a token {greatest}, and the model a vocabulary of {vocabulary}: "
            "choose a larger one, or encode the text with another tokenizer"
        )
    return tokens


def _map(path: Path) -> npt.NDArray[np.uint16]:
    try:
        # Only regular files: opening a named pipe would wait for ever.
        if not path.is_file():
            raise DataError(f"{path} is not a file")
        size_bytes = path.stat().st_size
        if size_bytes == 0 or size_bytes % TOKEN.itemsize:
            raise DataError(f"{path} has {size_bytes} bytes, not tokens of two bytes: is it truncated?")
        return np.memmap(path, dtype=TOKEN, mode="r")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
