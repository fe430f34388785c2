"""Makes reviews of words that are numbers: most are as frequent as in a language, some tell what the author thinks."""

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.suite.sentiment.vocabulary import PADDING, VOCABULARY

# For each label: the numbers from 2 are bad words, those after them good ones.
_TELLING_WORDS = 50

# Of a review's words.
_TELLING_SHARE = 0.2

# Of its telling words; the others are of the other label, as in "not bad".
_SINCERE_SHARE = 0.8


def make_reviews(
    count: int, length: int, random: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return words, shape (count, length), padded in front, and labels, shape (count,)."""
    labels = random.integers(0, 2, count)
    shape = (count, length)
    words = _frequent_words(shape, random)
    sincere = random.random(shape) < _SINCERE_SHARE
    meant = np.where(sincere, labels[:, np.newaxis], 1 - labels[:, np.newaxis])
    telling = 2 + meant * _TELLING_WORDS + random.integers(0, _TELLING_WORDS, shape)
    words = np.where(random.random(shape) < _TELLING_SHARE, telling, words)
    shortest = (length + 1) // 2
    starts = length - random.integers(shortest, length + 1, count)
    words[np.arange(length) < starts[:, np.newaxis]] = PADDING
    return words.astype(np.int32), labels.astype(np.float32)


def _frequent_words(shape: tuple[int, int], random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return words that tell nothing; the frequency of a word is inverse to its number, as in Zipf's law."""
    first = 2 + 2 * _TELLING_WORDS
    # Its logarithm is uniform, so that the density falls with the inverse of the number.
    words: npt.NDArray[np.int64] = (first * (VOCABULARY / first) ** random.random(shape)).astype(np.int64)
    return words
