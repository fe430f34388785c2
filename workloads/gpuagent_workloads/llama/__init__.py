"""A decoder-only Transformer of Llama's architecture, for serving and for training."""

from dataclasses import dataclass

# Tensor cores sum products in FP8 over multiples of this many numbers: features, or the tokens of a step.
FLOAT8_MULTIPLE = 16


# Without torch, which the list of workloads must not import.
@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The shape of a model.

    Attributes:
        width: features of a token; heads share it.
        kv_heads: heads of keys and values, each used by heads / kv_heads heads of queries.
        hidden: features inside the perceptron.
        vocabulary: number of different tokens, at least 256.
        rope_base: of the rotary positions; larger for longer contexts.
        tied: whether the embedding is also the output layer.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    rope_base: float = 500_000.0
    tied: bool = False


# By parameters. 60m is GaLore's (Zhao et al. 2024, its llama_60m.json); 1b, 3b and 8b are Meta's Llama 3.2 1B,
# 3.2 3B and 3.1 8B (their config.json), without the scaling of positions for long contexts.
PRESETS: dict[str, Size] = {
    "tiny": Size(layers=2, width=64, heads=4, kv_heads=2, hidden=176, vocabulary=256, tied=True),
    "60m": Size(layers=8, width=512, heads=8, kv_heads=8, hidden=1376, vocabulary=32_000, rope_base=1e4),
    "1b": Size(layers=16, width=2048, heads=32, kv_heads=8, hidden=8192, vocabulary=128_256, tied=True),
    "3b": Size(layers=28, width=3072, heads=24, kv_heads=8, hidden=8192, vocabulary=128_256, tied=True),
    "8b": Size(layers=32, width=4096, heads=32, kv_heads=8, hidden=14_336, vocabulary=128_256),
}
