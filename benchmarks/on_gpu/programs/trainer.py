"""GPT-2 on random tokens by the Trainer of Hugging Face: python3 trainer.py --precision bf16."""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

SIZES = {"gpt2": (12, 12, 768), "tiny": (2, 2, 64)}


class Tokens(torch.utils.data.Dataset):
    """Sequences of random tokens, which are their own labels."""

    def __init__(self, count, length, vocabulary):
        self.tokens = torch.randint(vocabulary, (count, length), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="fp32")
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    args = parser.parse_args()

    layers, heads, width = SIZES[args.size]
    config = GPT2Config(n_layer=layers, n_head=heads, n_embd=width, n_positions=args.length)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch_size,
            bf16=args.precision == "bf16",
            use_cpu=not torch.cuda.is_available(),
            logging_steps=10,
            save_strategy="no",
            report_to=[],
        )
        data = Tokens(args.steps * args.batch_size, args.length, config.vocab_size)
        Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()
