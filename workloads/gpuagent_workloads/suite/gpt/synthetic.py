"""Makes a stream of tokens with something to learn: phrases that come again and again, in random order."""

import math

import numpy as np
import numpy.typing as npt

PHRASES, PHRASE_TOKENS = 64, 16

# Of a token, if all phrases differ: no model's loss can stay below it, but by chance.
ENTROPY_NATS = math.log(PHRASES) / PHRASE_TOKENS


def make_tokens(count: int, vocabulary: int, random: np.random.Generator) -> npt.NDArray[np.uint16]:
    """Return `count` tokens below `vocabulary`."""
    phrases = random.integers(0, vocabulary, (PHRASES, PHRASE_TOKENS), dtype=np.uint16)
    return phrases[random.integers(0, PHRASES, math.ceil(count / PHRASE_TOKENS))].ravel()[:count]
