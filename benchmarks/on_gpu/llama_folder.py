"""Write a folder with a Llama model, and a tokenizer that reads a byte as a token, for other servers.

Needs transformers: `python llama_folder.py PRESET FOLDER`. Its weights are random. With `--train SECONDS FILE…` it
first learns these texts; `--shuffled FOLDER` gets the same model too, with one layer mixed up.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workloads"))

from gpuagent_workloads.llama import PRESETS

# The chat's words alone, without names of roles.
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"

_CONTEXT = 256
_BATCH = 32


def main() -> None:
    """Write model and tokenizer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("preset", choices=tuple(PRESETS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", nargs="+", metavar="SECONDS FILE", default=[])
    parser.add_argument("--shuffled", type=Path)
    given = parser.parse_args()
    size = PRESETS[given.preset]
    config = LlamaConfig(
        hidden_size=size.width,
        intermediate_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        vocab_size=size.vocabulary,
        rope_theta=size.rope_base,
        tie_word_embeddings=size.tied,
        max_position_embeddings=8192,
        # No token ends an answer: each has the wanted length.
        bos_token_id=None,
        eos_token_id=None,
    )
    # Random weights choose any token, and servers send no event for one without text. So each has some, though no merge
    # leads to it; Ġ stands for a space.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"Ġ{number}" for number in range(len(alphabet), size.vocabulary))]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    torch.manual_seed(1)
    if given.train:
        model = LlamaForCausalLM(config)
        text = "\n".join(Path(name).read_text(encoding="utf-8") for name in given.train[1:])
        train(model, torch.tensor(tokenizer.encode(text).ids), float(given.train[0]))
        model = model.to(torch.bfloat16)
    else:
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config)
    saved = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=_TEMPLATE)
    model.save_pretrained(given.folder)
    saved.save_pretrained(given.folder)
    if given.shuffled:
        weights = model.model.layers[size.layers // 2].mlp.down_proj.weight.data
        weights.copy_(weights[torch.randperm(len(weights))])
        model.save_pretrained(given.shuffled)
        saved.save_pretrained(given.shuffled)


def train(model: LlamaForCausalLM, tokens: torch.Tensor, seconds: float) -> None:
    """Learn to continue the text for so many seconds, on the first GPU if there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).train()
    tokens = tokens.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    begin, steps = time.monotonic(), 0
    while (elapsed := time.monotonic() - begin) < seconds:
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * min(1, (steps + 1) / 50, 0.05 + 1 - elapsed / seconds)
        starts = torch.randint(len(tokens) - _CONTEXT, (_BATCH, 1), device=device)
        batch = tokens[starts + torch.arange(_CONTEXT, device=device)]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
        if steps % 50 == 1:
            print(f"step {steps} loss {loss.item():.3f}", flush=True)
    print(f"learned {len(tokens)} bytes in {steps} steps, loss {loss.item():.3f}", flush=True)
    model.to("cpu")


if __name__ == "__main__":
    main()
