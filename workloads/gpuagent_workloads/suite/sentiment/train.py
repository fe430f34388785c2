"""The training of the sentiment workload.

Vocabulary, embedding, hidden size and loss are those of the sentiment RNN that the studies used. The last, smaller
batch of an epoch is left out, so that all steps do the same work.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gpuagent_workloads.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.sentiment import Config
from gpuagent_workloads.suite.sentiment.data import EncodedReviews, load_reviews
from gpuagent_workloads.suite.sentiment.model import build_network, step_flops
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.feed import Feed
from gpuagent_workloads.training.loop import train
from gpuagent_workloads.training.mfu import report_mfu
from gpuagent_workloads.training.model import report_counts, report_minimum_bytes
from gpuagent_workloads.training.setup import set_up

LEARNING_RATE = 1e-3
"""Of Adam, for all models."""

TEST_BATCH_SIZE = 250


def train_and_test(config: Config, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy."""
    train_reviews, test_reviews = load_reviews(config.data, config.length, config.seed, reporter)
    steps_per_epoch = len(train_reviews.labels) // config.batch_size
    if steps_per_epoch == 0:
        raise MisuseError(
            f"--batch-size {config.batch_size} is more than the {len(train_reviews.labels)} training reviews"
        )

    reporter.phase("setup")
    device, precision = set_up(config, reporter)
    reporter.result("model", config.model)
    model = build_network(config.model).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    feed = Feed(_endless_batches(train_reviews, config, device))

    def step() -> torch.Tensor:
        words_BL, labels_B = next(feed)
        with precision.autocast():
            loss = binary_cross_entropy_with_logits(model(words_BL), labels_B)
        precision.update(loss, optimizer)
        return loss

    measured = train(step, config, steps_per_epoch, device, reporter, feed)
    flops = step_flops(config.model, config.batch_size, config.length)
    report_counts(model, flops, reporter)
    report_mfu(flops, measured, precision, device, reporter)
    report_minimum_bytes(model, optimizer, next(feed), reporter)
    reporter.result("accuracy", _accuracy_percent(model, test_reviews, device), unit="%")


def _endless_batches(
    reviews: EncodedReviews, config: Config, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield words and labels for one step after the other, each epoch in another order."""
    random = np.random.default_rng(config.seed)
    complete = len(reviews.labels) - len(reviews.labels) % config.batch_size
    while True:
        for chosen in random.permutation(len(reviews.labels))[:complete].reshape(-1, config.batch_size):
            yield upload(reviews.words[chosen], device), upload(reviews.labels[chosen], device)


def _accuracy_percent(model: nn.Module, reviews: EncodedReviews, device: torch.device) -> float:
    words_NL, labels_N = torch.from_numpy(reviews.words), torch.from_numpy(reviews.labels)
    model.eval()
    with torch.inference_mode():
        guesses = [model(some.to(device)).cpu() > 0 for some in words_NL.split(TEST_BATCH_SIZE)]
    return 100 * (torch.cat(guesses) == (labels_N > 0)).double().mean().item()
