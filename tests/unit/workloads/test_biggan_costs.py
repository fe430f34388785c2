from dataclasses import replace
from itertools import repeat

import pytest

from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.train import loss_on_meta_device, minimum_bytes_per_step
from gpuagent_workloads.training.model import StepFlops, count_flops
from tests.unit.workloads.gans import BATCH, SMALL, flops_by_hand, size_of, small_gan


def test_model_flops_are_those_counted_by_hand() -> None:
    config = Config(ch=16, classes=7, batch_size=3, d_steps=1)
    convolutions, products = flops_by_hand(ch=16, classes=7, batch=3, d_steps=1)
    assert count_flops(lambda: loss_on_meta_device(config)) == StepFlops(convolutions=convolutions, products=products)


@pytest.mark.parametrize("ema", [False, True])
def test_the_least_bytes_are_those_of_all_updates(ema: bool) -> None:
    gan = small_gan(replace(SMALL, ema=ema))
    gan.step(repeat(BATCH))
    generator, discriminator = 4 * size_of(gan.generator), 4 * size_of(gan.discriminator)
    buffers, other_buffers = (
        sum(buffer.nbytes for buffer in network.buffers()) for network in (gan.generator, gan.discriminator)
    )
    images_and_labels = 128 * 128 * 3 + 8
    # Adam keeps two figures for each weight.
    updates = 2 * (2 * (3 * discriminator + other_buffers) + images_and_labels + generator)
    last = 2 * (3 * generator + buffers) + discriminator
    average = 2 * generator if ema else 0
    # And, on a CPU beside them, a count of its steps for each tensor, in 4 bytes.
    counts = 2 * 4 * (len(list(gan.generator.parameters())) + 2 * len(list(gan.discriminator.parameters())))
    assert minimum_bytes_per_step(gan, 2, BATCH) == updates + last + average + counts
