"""ResNet-50 in bf16, channels last, batches of 64 of 224 pixels and 200 classes: the loop anybody would write.

Uses torchvision's network where it is installed, ours otherwise; prints items a second.
"""

import time

import torch
from torch.nn.functional import cross_entropy

BATCH_SIZE = 64
WARMUP_STEPS = 5
SECONDS = 10.0


def main() -> None:
    """Train for ten seconds and print the throughput."""
    try:
        from torchvision.models import resnet50  # type: ignore[import-not-found]

        model = resnet50(num_classes=200)
    except ImportError:
        from gpuagent_workloads.suite.classification.networks import resnet50 as our_resnet50

        model = our_resnet50(200)
    model = model.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.025, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(BATCH_SIZE, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 200, (BATCH_SIZE,), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    for _ in range(WARMUP_STEPS):
        step()
    torch.cuda.synchronize()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        steps += 10
    print(BATCH_SIZE * steps / (time.perf_counter() - start))


if __name__ == "__main__":
    main()
