"""A loop with a model of timm and a data loader with workers: python3 timm_loop.py --amp-dtype bfloat16."""

import argparse
import time

import timm
import torch
from timm.optim import create_optimizer_v2


class Pictures(torch.utils.data.Dataset):
    """Random images of one size: eight, again and again."""

    def __init__(self, count, side):
        random = torch.Generator().manual_seed(1)
        self.images = torch.randint(256, (8, 3, side, side), dtype=torch.uint8, generator=random)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.images[index % 8], index % 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--amp-dtype", choices=["bfloat16", "float32"], default="float32")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--workers", type=int, default=8)
    args = parser.parse_args()

    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = timm.create_model(args.model, num_classes=10).to(device)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.05, momentum=0.9)
    loss_function = torch.nn.CrossEntropyLoss()
    loader = torch.utils.data.DataLoader(
        Pictures(args.steps * args.batch_size, args.side), args.batch_size, num_workers=args.workers, pin_memory=True
    )
    mixed = torch.autocast(device.type, getattr(torch, args.amp_dtype), enabled=args.amp_dtype != "float32")
    began = time.perf_counter()
    for step, (read_images, read_labels) in enumerate(loader, 1):
        images, labels = read_images.to(device, non_blocking=True), read_labels.to(device, non_blocking=True)
        with mixed:
            loss = loss_function(model(images.float() / 255), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f} after {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
