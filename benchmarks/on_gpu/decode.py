#!/usr/bin/env python3
"""Generate a token for each of 64 sequences, again and again, as a server of a Llama of a billion parameters does.

The GPU reads all weights and keys for each token. The layers have Llama 3.2 1B's sizes and
random weights in bf16; keys and values of 2,048 tokens a sequence are there already. A CUDA graph starts
the kernels, so that the GPU and not the host limits the time.
"""

import argparse
import time

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

WIDTH, HEADS, KEY_HEADS, HEAD_WIDTH, FEED_FORWARD, VOCABULARY = 2048, 32, 8, 64, 8192, 128256
# Steps of a group, after which the host looks at the clock.
STEPS = 50


def random_tensor(*shape: int, device: torch.device) -> torch.Tensor:
    """Return small random numbers of that shape in bf16."""
    return torch.randn(*shape, device=device, dtype=torch.bfloat16) / 32


class Layer:
    """One layer with its keys and values of all sequences."""

    def __init__(self, sequences: int, length: int, device: torch.device) -> None:
        """Make weights and a cache of random numbers."""
        self.query_key_value = random_tensor((HEADS + 2 * KEY_HEADS) * HEAD_WIDTH, WIDTH, device=device)
        self.attended = random_tensor(WIDTH, HEADS * HEAD_WIDTH, device=device)
        self.gate_and_up = random_tensor(2 * FEED_FORWARD, WIDTH, device=device)
        self.down = random_tensor(WIDTH, FEED_FORWARD, device=device)
        self.keys = random_tensor(sequences, KEY_HEADS, length, HEAD_WIDTH, device=device)
        self.values = random_tensor(sequences, KEY_HEADS, length, HEAD_WIDTH, device=device)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states, (sequences, WIDTH), after this layer; the newest keys go to the cache's end."""
        projected = torch.nn.functional.rms_norm(hidden, (WIDTH,)) @ self.query_key_value.T
        heads = projected.view(len(hidden), HEADS + 2 * KEY_HEADS, HEAD_WIDTH)
        query, key, value = heads.split((HEADS, KEY_HEADS, KEY_HEADS), dim=1)
        self.keys[:, :, -1] = key
        self.values[:, :, -1] = value
        # The query heads that share a key are rows of one attention, so that keys are read once.
        rows = query.view(len(hidden), KEY_HEADS, HEADS // KEY_HEADS, HEAD_WIDTH)
        mixed = scaled_dot_product_attention(rows, self.keys, self.values)
        hidden = hidden + mixed.reshape(len(hidden), -1) @ self.attended.T
        gate, up = (torch.nn.functional.rms_norm(hidden, (WIDTH,)) @ self.gate_and_up.T).chunk(2, dim=-1)
        return hidden + (silu(gate) * up) @ self.down.T


def main() -> None:
    """Print the time of groups of steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--groups", type=int, default=30)
    args = parser.parse_args()

    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    vocabulary = random_tensor(VOCABULARY, WIDTH, device=device)
    layers = [Layer(args.sequences, args.length, device) for _ in range(args.layers)]
    tokens = torch.zeros(args.sequences, dtype=torch.long, device=device)

    def decode() -> None:
        hidden = vocabulary[tokens]
        for layer in layers:
            hidden = layer(hidden)
        tokens.copy_((hidden @ vocabulary.T).argmax(dim=-1))

    with torch.inference_mode():
        for _ in range(3):
            decode()
        step = decode
        if device.type == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                decode()
            step = graph.replay
        for group in range(1, args.groups + 1):
            began = time.perf_counter()
            for _ in range(STEPS):
                step()
            tokens.cpu()
            print(f"step {group * STEPS}: {(time.perf_counter() - began) / STEPS * 1000:.4f} ms", flush=True)


if __name__ == "__main__":
    main()
