"""The Llama network: rotary positions, RMS norm, SwiGLU, and heads of keys and values that groups of queries share.

Shapes: B sequences of a batch, L tokens of each, D features of a token (the width), H heads of queries, G heads of keys
and values, K features of a head, S tokens that the cache has room for, V tokens of the vocabulary.
"""

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

from gpuagent_workloads.llama import Size

# Of the weights, as in Meta's training.
INITIAL_DEVIATION = 0.02


class Cache:
    """Keys and values of the tokens so far, for each layer and sequence."""

    def __init__(self, size: Size, sequences: int, tokens: int, *, device: torch.device, dtype: torch.dtype) -> None:
        shape = (size.layers, 2, sequences, size.kv_heads, tokens, size.width // size.heads)
        self._both = torch.zeros(shape, device=device, dtype=dtype)

    def move(self, source: int, target: int) -> None:
        """Copy a sequence over another."""
        self._both[:, :, target] = self._both[:, :, source]

    def extend(
        self, layer: int, first: int, positions_BL: torch.Tensor, k_BGLK: torch.Tensor, v_BGLK: torch.Tensor, end: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store keys and values of new tokens, and return all up to `end`, each of shape (B, G, end, K).

        Args:
            first: the first of the B sequences, which follow one another.
            positions_BL: places of the new tokens.
            end: one more than the largest place.
        """
        count, length = positions_BL.shape
        rows_BL = torch.arange(first, first + count, device=positions_BL.device)[:, None].expand(count, length)
        for part, new_BGLK in enumerate((k_BGLK, v_BGLK)):
            self._both[layer, part, rows_BL, :, positions_BL] = new_BGLK.transpose(1, 2)
        k_BGSK, v_BGSK = self._both[layer, :, first : first + count, :, :end]
        return k_BGSK, v_BGSK


class Llama(nn.Module):
    """A decoder-only Transformer."""

    def __init__(self, size: Size, context: int) -> None:
        """Make the network with new weights; `context` is the most tokens of a sequence."""
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        self.blocks = nn.ModuleList(Block(size, layer) for layer in range(size.layers))
        self.norm = nn.RMSNorm(size.width, eps=1e-5)
        self.output = None if size.tied else nn.Linear(size.width, size.vocabulary, bias=False)
        self.register_buffer("turns_LK", rotations(context, size.width // size.heads, size.rope_base), persistent=False)
        self.apply(_initialise)

    def forward(
        self,
        tokens_BL: torch.Tensor,
        positions_BL: torch.Tensor | None = None,
        cache: Cache | None = None,
        *,
        first: int = 0,
        end: int = 0,
    ) -> torch.Tensor:
        """Return the features of each token before the output layer, shape (B, L, D).

        Args:
            positions_BL: their places in their sequences; None: from 0 on.
            cache: of the tokens before; None: there are none.
            first: the first of the B sequences in the cache.
            end: one more than the largest place; only for the cache.
        """
        turns: torch.Tensor = self.turns_LK  # type: ignore[assignment]
        turns = turns[: tokens_BL.shape[1]] if positions_BL is None else turns[positions_BL]
        x_BLD = self.embedding(tokens_BL)
        for block in self.blocks:
            x_BLD = block(x_BLD, turns, positions_BL, cache, first, end)
        normed_BLD: torch.Tensor = self.norm(x_BLD)
        return normed_BLD

    def logits(self, x_BLD: torch.Tensor) -> torch.Tensor:
        """Return the scores of all next tokens, shape (B, L, V)."""
        return linear(x_BLD, self.embedding.weight if self.output is None else self.output.weight)


class Block(nn.Module):
    """Attention, then a perceptron for each token; both add to their input."""

    def __init__(self, size: Size, layer: int) -> None:
        super().__init__()
        self.layer, self.grouped = layer, size.heads != size.kv_heads
        # Keep no activations but the input; compute them again in the backward pass.
        self.recompute = False
        self.head = head = size.width // size.heads
        self.attention_norm = nn.RMSNorm(size.width, eps=1e-5)
        self.queries = nn.Linear(size.width, size.heads * head, bias=False)
        self.keys = nn.Linear(size.width, size.kv_heads * head, bias=False)
        self.values = nn.Linear(size.width, size.kv_heads * head, bias=False)
        self.project = nn.Linear(size.heads * head, size.width, bias=False)
        self.mlp_norm = nn.RMSNorm(size.width, eps=1e-5)
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(
        self,
        x_BLD: torch.Tensor,
        turns: torch.Tensor,
        positions_BL: torch.Tensor | None,
        cache: Cache | None,
        first: int,
        end: int,
    ) -> torch.Tensor:
        """Return the input of the next block, shape (B, L, D); see `Llama.forward`."""
        if self.recompute and torch.is_grad_enabled():
            kept_BLD: torch.Tensor = checkpoint(
                self.compute, x_BLD, turns, positions_BL, cache, first, end, use_reentrant=False
            )
            return kept_BLD
        return self.compute(x_BLD, turns, positions_BL, cache, first, end)

    def compute(
        self,
        x_BLD: torch.Tensor,
        turns: torch.Tensor,
        positions_BL: torch.Tensor | None,
        cache: Cache | None,
        first: int,
        end: int,
    ) -> torch.Tensor:
        """Compute the block without checkpointing; compiled alone, so that a sharded block's hooks stay outside."""
        normed_BLD = self.attention_norm(x_BLD)
        # Under tensor parallelism these are the heads of this rank.
        q_BHLK, k_BGLK, v_BGLK = (
            part(normed_BLD).unflatten(2, (-1, self.head)).transpose(1, 2)
            for part in (self.queries, self.keys, self.values)
        )
        q_BHLK, k_BGLK = rotate(q_BHLK, turns), rotate(k_BGLK, turns)
        if cache is None or positions_BL is None:
            taken_BHLK = scaled_dot_product_attention(q_BHLK, k_BGLK, v_BGLK, is_causal=True, enable_gqa=self.grouped)
        else:
            k_BGSK, v_BGSK = cache.extend(self.layer, first, positions_BL, k_BGLK, v_BGLK, end)
            # The attention of each token to those of the cache up to its own place, shape (B, H, L, K).
            groups = k_BGSK.shape[1]
            # The queries that share keys become further rows of one product, so that no key is copied.
            q_BGRK = q_BHLK.unflatten(1, (groups, -1)).flatten(2, 3)
            seen_BLS = torch.arange(k_BGSK.shape[2], device=positions_BL.device) <= positions_BL[:, :, None]
            mask_BRS = seen_BLS.repeat(1, q_BHLK.shape[1] // groups, 1)
            taken_BGRK = scaled_dot_product_attention(q_BGRK, k_BGSK, v_BGSK, attn_mask=mask_BRS[:, None])
            taken_BHLK = taken_BGRK.unflatten(2, (-1, q_BHLK.shape[2])).flatten(1, 2)
        x_BLD = x_BLD + self.project(taken_BHLK.transpose(1, 2).flatten(2))
        normed_BLD = self.mlp_norm(x_BLD)
        mlp_BLD: torch.Tensor = self.down(silu(self.gate(normed_BLD)) * self.up(normed_BLD))
        return x_BLD + mlp_BLD


def rotations(context: int, features: int, base: float) -> torch.Tensor:
    """Return cosine and sine of each place's angles, shape (context, 2, features / 2), in float32."""
    rates = base ** (-torch.arange(0, features, 2, dtype=torch.float32) / features)
    angles = torch.arange(context, dtype=torch.float32)[:, None] * rates
    return torch.stack((angles.cos(), angles.sin()), dim=1)


def rotate(x_BHLK: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turn each pair of features (one of the first half, one of the second) by the angle of its token's place.

    `turns` has shape (L, 2, K / 2) or (B, L, 2, K / 2).
    """
    cosine, sine = turns.unsqueeze(-4).unbind(-2)
    low, high = x_BHLK.float().chunk(2, dim=-1)
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), dim=-1).to(x_BHLK.dtype)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_DEVIATION)
