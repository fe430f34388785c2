"""A plain torch loop beside the workload llama: the same network, on tokens that stay on the device.

Reports its throughput to gpuagent, and prints it. `python plain_llama.py --model 1b --context 2048 --batch-size 4`
"""

import argparse
import time

import torch

import gpuagent_report
from gpuagent_workloads.llama import PRESETS
from gpuagent_workloads.llama.training import LanguageModel, materialise

WARMUP_STEPS = 5


def main() -> None:
    """Train and report tokens a second."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="1b", choices=tuple(PRESETS))
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = PRESETS[given.model]
    with torch.device("meta"):
        model = LanguageModel(size, given.context)
    materialise(model, device, seed=1)
    matrices = [weights for weights in model.parameters() if weights.dim() >= 2]
    norms = [weights for weights in model.parameters() if weights.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=device.type == "cuda")
    tokens = torch.randint(0, size.vocabulary, (given.batch_size, given.context + 1), device=device)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = model(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    train(WARMUP_STEPS)
    began = time.perf_counter()
    train(given.steps)
    throughput = given.steps * given.batch_size * given.context / (time.perf_counter() - began)
    with gpuagent_report.report() as run:
        run.result("throughput", throughput, unit="tokens/s")
    print(throughput)


if __name__ == "__main__":
    main()
