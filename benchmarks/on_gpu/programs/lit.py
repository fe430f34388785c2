"""A small convolutional network on random images by Lightning: python3 lit.py --precision bf16-mixed."""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Network(lightning.LightningModule):
    """Four convolutions and a classifier."""

    def __init__(self, width):
        super().__init__()
        layers = []
        for before, after in ((3, width), (width, width), (width, 2 * width), (2 * width, 2 * width)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(10))

    def training_step(self, batch, _index):
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=["bf16-mixed", "32-true"], default="32-true")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--width", type=int, default=128)
    args = parser.parse_args()

    torch.manual_seed(1)
    images = torch.randn(2048, 3, 64, 64)
    data = TensorDataset(images, torch.randint(10, (len(images),)))
    network = Network(args.width)
    network.layers(images[:2])  # gives the lazy layer its size
    trainer = lightning.Trainer(
        max_steps=args.steps,
        precision=args.precision,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        log_every_n_steps=10,
    )
    trainer.fit(network, DataLoader(data, args.batch_size, shuffle=True, drop_last=True))


if __name__ == "__main__":
    main()
