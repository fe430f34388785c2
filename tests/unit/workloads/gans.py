"""A BigGAN that is small enough for tests, and what a step costs, counted by hand."""

import torch
from torch import nn

from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.gan import Gan
from gpuagent_workloads.suite.biggan.networks import Generator
from gpuagent_workloads.training.images import Batch
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks

CPU = torch.device("cpu")
SMALL = Config(ch=8, classes=3, device="cpu", batch_size=1, d_steps=1, warmup=1, steps=1, threads=1)
BATCH: Batch = (torch.full((1, 128, 128, 3), 100, dtype=torch.uint8), torch.tensor([2]))


def small_gan(config: Config = SMALL) -> Gan:
    torch.manual_seed(1)
    return Gan(config, CPU, Precision(config.precision, CPU), Ranks())


def size_of(network: nn.Module) -> int:
    return sum(weights.numel() for weights in network.parameters())


def convolution_by_hand(side: int, channels_in: int, channels_out: int, kernel: int) -> int:
    """Multiplications of a convolution with `side` × `side` outputs."""
    return side**2 * channels_out * channels_in * kernel**2


def attention_by_hand(channels: int) -> tuple[int, int]:
    """Multiplications of its convolutions, of 1 × 1 pixels, and of its products: 64² pixels look at 32² places."""
    eighth, half = channels // 8, channels // 2
    return 64**2 * channels * (2 * eighth + 2 * half), 64**2 * 32**2 * (eighth + half)


def penalty_by_hand(ch: int, classes: int) -> int:
    """Multiplications of W Wᵀ W, for all of the generator's weights but the classes'."""
    with torch.device("meta"):
        generator = Generator(ch, classes)
    shapes = [(w.shape[0], w[0].numel()) for w in generator.parameters() if w.dim() > 1 and w.shape != (classes, 128)]
    return sum(2 * rows * columns * min(rows, columns) for rows, columns in shapes)


def flops_by_hand(ch: int, classes: int, batch: int, d_steps: int) -> tuple[int, int]:
    """Return the FLOPs of a step's convolutions and of its products."""
    made_convolutions, made_scores = attention_by_hand(2 * ch)
    conditions = 0
    for side, taken, given in ((8, 16, 16), (16, 16, 8), (32, 8, 4), (64, 4, 2), (128, 2, 1)):
        made_convolutions += sum(
            convolution_by_hand(side, *layer)
            for layer in ((taken * ch, given * ch, 3), (given * ch, given * ch, 3), (taken * ch, given * ch, 1))
        )
        # A gain and a bias for each channel, before both convolutions, from 128 + 20 features.
        conditions += 148 * 2 * (taken + given) * ch
    made_convolutions += convolution_by_hand(128, ch, 3, 3)
    first = 20 * 16 * ch * 4**2

    seen_convolutions, seen_scores = attention_by_hand(ch)
    from_images = convolution_by_hand(128, 3, ch, 3) + convolution_by_hand(64, 3, ch, 1)
    seen_convolutions += from_images + convolution_by_hand(128, ch, ch, 3)
    for side, taken, given in ((64, 1, 2), (32, 2, 4), (16, 4, 8), (8, 8, 16)):
        seen_convolutions += sum(
            convolution_by_hand(side, *layer)
            for layer in ((taken * ch, given * ch, 3), (given * ch, given * ch, 3), (taken * ch, given * ch, 1))
        )
    seen_convolutions += 2 * convolution_by_hand(4, 16 * ch, 16 * ch, 3)
    score = 16 * ch

    # Forward, gradients of the weights, gradients of the input: 1 + 1 + 1. An update of the discriminator makes images
    # without gradients, and needs none of images; one of the generator needs none of the discriminator's weights and of
    # the noise.
    update_convolutions = made_convolutions + 2 * (3 * seen_convolutions - from_images)
    update_products = first + conditions + made_scores + 2 * 3 * (seen_scores + score)
    last_convolutions = 3 * made_convolutions + 2 * seen_convolutions
    last_products = 2 * first + 3 * (conditions + made_scores) + 3 * seen_scores + 2 * score
    return (
        2 * batch * (d_steps * update_convolutions + last_convolutions),
        2 * batch * (d_steps * update_products + last_products) + 2 * penalty_by_hand(ch, classes),
    )
