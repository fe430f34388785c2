import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import batch_norm, max_pool2d, scaled_dot_product_attention

from gpuagent_workloads.data.images import make_images
from gpuagent_workloads.suite.biggan import Config
from gpuagent_workloads.suite.biggan.networks import (
    ConditionalBatchNorm,
    Discriminator,
    Generator,
    SelfAttention,
    draw,
    normalised,
)
from gpuagent_workloads.suite.biggan.train import (
    Gan,
    discriminator_loss,
    frozen,
    generator_loss,
    loss_on_meta_device,
    minimum_bytes_per_step,
    penalty_gradient,
    regularised,
)
from gpuagent_workloads.training.images import Batch
from gpuagent_workloads.training.model import StepFlops, count_flops
from gpuagent_workloads.training.precision import Precision
from gpuagent_workloads.training.ranks import Ranks
from tests.unit.workloads.runs import of_kind, phases_of, read_events, results_of, run_config, run_workloads

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def image_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of two images, in the folders of tiny-imagenet-200."""
    directory = tmp_path_factory.mktemp("images")
    for number in range(3):
        folder = directory / "train" / f"class{number}" / "images"
        folder.mkdir(parents=True)
        for name in ("one", "two"):
            Image.new("RGB", (64, 64), (number * 80, 0, 0)).save(folder / f"{name}.JPEG")
    return directory


@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize(
    ("ranks", "more", "autocast"),
    [(1, ["--precision", "bf16", "--channels-last"], "bfloat16"), (2, [], "none")],
    ids=["mixed precision", "two ranks"],
)
def test_it_trains_on_images(ranks: int, more: list[str], autocast: str, image_files: Path, tmp_path: Path) -> None:
    small = ["--ch", "8", "--classes", "3", "--batch-size", "2", "--warmup", "0", "--steps", "1", "--threads", "1"]
    small += ["--data", str(image_files), "--workers", "0", *more]
    done = run_workloads(
        "run", "biggan", "--device", "cpu", "--ranks", str(ranks), *small, GPUAGENT_RUN_DIR=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    events = read_events(tmp_path / f"events.{ranks - 1}.0.jsonl")
    results = results_of(events)
    assert phases_of(events) == ["prepare", "setup", "measure", "teardown", "end"]
    # Two updates of the discriminator, each with two real images.
    assert {event["items"] for event in of_kind(events, "step")} == {4}
    assert {"loss", "discriminator_loss", "minimum_bytes_per_step", "data_wait_share"} <= results.keys()
    assert all(math.isfinite(results[name]) for name in ("loss", "discriminator_loss"))
    assert results["parameters"] == results["generator_parameters"] + results["discriminator_parameters"]
    assert results["model_flops_per_step"] == 7_173_046_272 + 2_369_879_328
    assert results["data_source"] == f"6 image files of 3 classes in {image_files}"
    assert results["autocast"] == autocast


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("parameters", [{}, {"precision": "bf16", "channels_last": True}, {"precision": "fp16"}])
def test_it_trains_at_full_size_on_a_gpu(parameters: dict[str, Any], tmp_path: Path) -> None:
    events = run_config("biggan", tmp_path, device="cuda", batch_size=32, steps=20, **parameters)
    assert 0 < results_of(events).get("mfu", 1) < 100


def minimise(loss_of: Callable[[], torch.Tensor], network: nn.Module, steps: int) -> list[float]:
    """Return the loss before each step of Adam."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, betas=(0.0, 0.999))
    losses = []
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_discriminator_learns_to_tell_real_images_from_noise() -> None:
    torch.manual_seed(1)
    images = make_images(16, 2, 32, np.random.default_rng(1))
    real = torch.from_numpy(images.images).permute(0, 3, 1, 2) / 127.5 - 1, torch.from_numpy(images.labels)
    discriminator = Discriminator(8, 2)

    def loss() -> torch.Tensor:
        # What passes its input on stands in for the generator.
        noise = torch.rand(16, 3, 32, 32) * 2 - 1, torch.randint(2, (16,))
        return discriminator_loss(Echo(), discriminator, real, noise)

    losses = minimise(loss, discriminator, 30)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 2


class Echo(nn.Module):
    def forward(self, noise: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
        return noise


def test_a_generator_learns_to_please_a_discriminator() -> None:
    gan, noise = small_gan(), draw(SMALL, CPU)

    def loss() -> torch.Tensor:
        with frozen(gan.discriminator):
            return generator_loss(gan.generator, gan.discriminator, noise)

    losses = minimise(loss, gan.generator, 3)
    assert losses[-1] < losses[0]


def test_networks_have_the_parameters_of_the_reference() -> None:
    with torch.device("meta"):
        sizes = size_of(Generator(96, 1000)), size_of(Discriminator(96, 1000))
    # As ajbrock/BigGAN-PyTorch counts them for its scripts that train BigGAN at 128 pixels.
    assert sizes == (70_433_988, 87_982_370)


def test_made_images_have_128_pixels_and_depend_on_noise_and_class() -> None:
    torch.manual_seed(1)
    generator = Generator(8, 3).eval()
    noise = torch.randn(2, 120)
    with torch.inference_mode():
        images, others, of_others = (
            generator(some, torch.tensor(labels))
            for some, labels in ((noise, [0, 1]), (noise, [2, 1]), (noise.flip(0), [0, 1]))
        )
    assert images.shape == (2, 3, 128, 128)
    assert images.abs().max() <= 1
    assert not torch.allclose(images[0], others[0])
    torch.testing.assert_close(images[1], others[1])
    assert not torch.allclose(images[0], of_others[0])


def test_every_chunk_of_the_noise_matters() -> None:
    noise = torch.randn(1, 120, requires_grad=True)
    small_gan().generator.eval()(noise, torch.tensor([0])).square().sum().backward()
    assert noise.grad is not None
    assert (noise.grad.reshape(6, 20).abs().sum(dim=1) > 0).all()


def test_scores_depend_on_the_class() -> None:
    images = torch.randn(1, 3, 32, 32).expand(2, -1, -1, -1)
    with torch.inference_mode():
        scores = small_gan().discriminator.eval()(images, torch.tensor([0, 1]))
    assert scores.shape == (2,)
    assert scores[0] != scores[1]


@pytest.mark.parametrize("build", [lambda: nn.Linear(6, 4), lambda: nn.Conv2d(3, 40, 3), lambda: nn.Embedding(5, 7)])
def test_weights_are_orthogonal_at_first_and_their_largest_singular_value_stays_1(
    build: Callable[[], nn.Linear],
) -> None:
    torch.manual_seed(1)
    layer = normalised(build())
    values = torch.linalg.svdvals(layer.weight.flatten(1))
    torch.testing.assert_close(values, torch.ones_like(values))
    (weights,) = (some for name, some in layer.named_parameters() if name.endswith("original"))
    with torch.no_grad():
        weights.copy_(3 * torch.randn_like(weights))
    for _ in range(100):
        # Each use of the weights is an iteration of the power method.
        largest = torch.linalg.svdvals(layer.weight.flatten(1)).max()
    assert largest.item() == pytest.approx(1, rel=0.01)


def test_self_attention_starts_without_effect_and_is_then_that_of_torch() -> None:
    torch.manual_seed(1)
    attention, x = SelfAttention(16), torch.randn(2, 16, 8, 8)
    assert torch.equal(attention(x), x)
    with torch.no_grad():
        attention.gain.fill_(0.5)
    attention.eval()
    query, key, value = attention.query(x), max_pool2d(attention.key(x), 2), max_pool2d(attention.value(x), 2)
    query, key, value = (part.flatten(2).transpose(1, 2) for part in (query, key, value))
    taken = scaled_dot_product_attention(query, key, value, scale=1).transpose(1, 2)
    torch.testing.assert_close(attention(x), x + 0.5 * attention.project(taken.reshape(2, 8, 8, 8)))


def test_batch_normalisation_takes_its_gain_and_bias_from_the_condition() -> None:
    torch.manual_seed(1)
    norm, x, condition = ConditionalBatchNorm(4), torch.randn(3, 4, 8, 8), torch.randn(3, 148)
    # Without the power method these two compute the same each time.
    gain, bias = (layer.eval()(condition)[:, :, None, None] for layer in (norm.gain, norm.bias))
    expected = (1 + gain) * batch_norm(x, None, None, training=True) + bias
    torch.testing.assert_close(norm(x, condition), expected)


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (4, 2, 3, 3)])
def test_the_penaltys_gradient_is_that_of_what_is_not_orthogonal(shape: tuple[int, ...]) -> None:
    weights = torch.randn(*shape, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(1))
    matrix = weights.flatten(1)
    products = matrix @ matrix.T
    (products - products.diag().diag()).square().sum().backward()
    torch.testing.assert_close(penalty_gradient(weights.detach()), weights.grad)
    # Orthogonal weights of any length have no penalty.
    assert not penalty_gradient(3 * torch.eye(4, 6)).any()


def test_all_weights_of_the_generator_but_those_of_the_classes_should_be_orthogonal() -> None:
    with torch.device("meta"):
        generator = Generator(8, 3)
    left_out = {id(w) for w in generator.parameters()} - {id(w) for w in regularised(generator)}
    names = [name for name, weights in generator.named_parameters() if id(weights) in left_out]
    assert [name for name in names if not name.endswith("bias")] == [
        "class_embedding.weight",
        "attention.gain",
        "norm.weight",
    ]


def test_each_update_gives_gradients_to_its_own_network_alone() -> None:
    gan, noise = small_gan(), draw(SMALL, CPU)
    real = torch.randn(1, 3, 128, 128), BATCH[1]
    discriminator_loss(gan.generator, gan.discriminator, real, noise).backward()
    assert all(weights.grad is None for weights in gan.generator.parameters())
    assert all(weights.grad is not None for weights in gan.discriminator.parameters())
    gan.discriminator.zero_grad()
    with frozen(gan.discriminator):
        loss = generator_loss(gan.generator, gan.discriminator, noise)
    loss.backward()
    assert all(weights.grad is not None for weights in gan.generator.parameters())
    assert all(weights.grad is None for weights in gan.discriminator.parameters())
    assert all(weights.requires_grad for weights in gan.discriminator.parameters())


def test_a_step_takes_a_batch_for_each_update_of_the_discriminator() -> None:
    config = replace(SMALL, d_steps=3)
    batches = iter(4 * [BATCH])
    small_gan(config).step(batches)
    assert len(list(batches)) == 1
    assert (config.items_per_step, config.samples_per_step) == (3, 3)


def test_a_training_goes_on_from_the_state_of_its_parts_as_if_it_had_not_stopped() -> None:
    gan = small_gan()
    gan.step(repeat(BATCH))
    states = {name: deepcopy(part.state_dict()) for name, part in gan.parts.items()}
    other = Gan(SMALL, CPU, Precision("default", CPU), Ranks())
    for name, part in other.parts.items():
        part.load_state_dict(states[name])
    losses = []
    for training in (gan, other):
        torch.manual_seed(2)
        losses.append((training.step(repeat(BATCH)).item(), training.step(repeat(BATCH)).item()))
    assert losses[0] == pytest.approx(losses[1])


def test_each_network_learns_at_its_own_rate() -> None:
    gan = small_gan(replace(SMALL, lr_g=1e-4, lr_d=4e-4))
    assert gan.generator_optimizer.param_groups[0]["lr"] == 1e-4
    assert gan.discriminator_optimizer.param_groups[0]["lr"] == 4e-4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--ch", "12"], "--ch must be a multiple of 8, for self-attention, not 12"),
        (["--ch", "0"], "--ch must be at least 8"),
        (["--d-steps", "0"], "--d-steps must be at least 1"),
        (["--data", "/nowhere"], "cannot read /nowhere/train"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(arguments: list[str], complaint: str) -> None:
    done = run_workloads("run", "biggan", "--device", "cpu", *arguments)
    assert done.returncode in (1, 2)
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


CPU = torch.device("cpu")
SMALL = Config(ch=8, classes=3, device="cpu", batch_size=1, d_steps=1, warmup=1, steps=1, threads=1)
BATCH: Batch = (torch.full((1, 128, 128, 3), 100, dtype=torch.uint8), torch.tensor([2]))


def small_gan(config: Config = SMALL) -> Gan:
    torch.manual_seed(1)
    return Gan(config, CPU, Precision(config.precision, CPU), Ranks())


def size_of(network: nn.Module) -> int:
    return sum(weights.numel() for weights in network.parameters())


def test_model_flops_are_those_counted_by_hand() -> None:
    # Of each layer, of the self-attention and of the penalty of weights that are not orthogonal.
    config = Config(ch=16, classes=7, batch_size=3, d_steps=1)
    counted = count_flops(lambda: loss_on_meta_device(config))
    assert counted == StepFlops(convolutions=28_202_237_952, products=6_033_883_200)


def test_the_least_bytes_are_those_of_all_updates() -> None:
    gan = small_gan()
    gan.step(repeat(BATCH))
    generator, discriminator = 4 * size_of(gan.generator), 4 * size_of(gan.discriminator)
    buffers, other_buffers = (
        sum(buffer.nbytes for buffer in network.buffers()) for network in (gan.generator, gan.discriminator)
    )
    images_and_labels = 128 * 128 * 3 + 8
    # Adam keeps two figures for each weight.
    updates = 2 * (2 * (3 * discriminator + other_buffers) + images_and_labels + generator)
    last = 2 * (3 * generator + buffers) + discriminator
    # And, on a CPU beside them, a count of its steps for each tensor, in 4 bytes.
    counts = 2 * 4 * (len(list(gan.generator.parameters())) + 2 * len(list(gan.discriminator.parameters())))
    assert minimum_bytes_per_step(gan, 2, BATCH) == updates + last + counts
