"""Write a folder with a Llama model of random weights, and a tokenizer that reads a byte as a token, for other servers.

Needs transformers: `python llama_folder.py PRESET FOLDER`.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workloads"))

from gpuagent_workloads.llama.presets import PRESETS

# The chat's words alone, without names of roles.
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def main() -> None:
    """Write model and tokenizer."""
    preset, folder = sys.argv[1], Path(sys.argv[2])
    size = PRESETS[preset]
    config = LlamaConfig(
        hidden_size=size.width,
        intermediate_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        vocab_size=size.vocabulary,
        rope_theta=size.rope_base,
        tie_word_embeddings=size.tied,
        max_position_embeddings=4096,
        # No token ends an answer: each has the wanted length.
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    LlamaForCausalLM(config).save_pretrained(folder)
    # Random weights choose any token, and servers send no event for one without text. So each has some, though no merge
    # leads to it; Ġ stands for a space.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"Ġ{number}" for number in range(len(alphabet), size.vocabulary))]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=_TEMPLATE).save_pretrained(folder)


if __name__ == "__main__":
    main()
