"""Turns texts into numbers: a word's number is its rank in the training texts."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

# Rows of the embedding: the 25,000 most frequent words, and two for what is no word or not among them.
VOCABULARY = 25_002

PADDING, UNKNOWN = 0, 1

_LINE_BREAK = re.compile(r"<br\s*/?>")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[!?]")


def words_of(text: str) -> list[str]:
    """Return the words of `text` in lower case, and its question and exclamation marks."""
    return _WORD.findall(_LINE_BREAK.sub(" ", text.lower()))


def number_words(texts: Iterable[Sequence[str]]) -> dict[str, int]:
    """Return the numbers, from 2, of the most frequent words; of equally frequent ones, the first in the alphabet."""
    counts = Counter(word for words in texts for word in words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: VOCABULARY - 2], start=2)}


def encode(texts: Sequence[Sequence[str]], numbers: Mapping[str, int], length: int) -> npt.NDArray[np.int32]:
    """Return the numbers of the last `length` words of each text, shape (texts, length), padded in front.

    A text without words holds one unknown word, so that no text is padding only.
    """
    encoded = np.full((len(texts), length), PADDING, dtype=np.int32)
    for row, words in zip(encoded, texts, strict=True):
        last = [numbers.get(word, UNKNOWN) for word in words[-length:]] or [UNKNOWN]
        row[-len(last) :] = last
    return encoded
