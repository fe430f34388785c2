"""The training of the sentiment workload.

Vocabulary, embedding, hidden size and loss are those of the sentiment RNN that the studies used. An epoch's last
reviews share a batch with the next one's first, so that all steps do the same work.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.sentiment import Config
from gpuagent_workloads.suite.sentiment.data import EncodedReviews, load_reviews
from gpuagent_workloads.suite.sentiment.model import build_network, step_flops
from gpuagent_workloads.training.compiling import compiled
from gpuagent_workloads.training.device import upload
from gpuagent_workloads.training.elastic.progress import resume
from gpuagent_workloads.training.feed import Feed
from gpuagent_workloads.training.loop import train
from gpuagent_workloads.training.mfu import report_mfu
from gpuagent_workloads.training.model import report_counts, report_minimum_bytes
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.ranks import parallel
from gpuagent_workloads.training.setup import set_up

# Of Adam, for all models.
LEARNING_RATE = 1e-3

TEST_BATCH_SIZE = 250


def train_and_test(config: Config, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy."""
    train_reviews, test_reviews = load_reviews(config.data, config.length, config.seed, reporter)

    reporter.phase("setup")
    device, precision, ranks = set_up(config, reporter)
    reporter.result("model", config.model)
    model = build_network(config.model).to(device)
    forward = compiled(parallel(model, ranks, device), config.compile, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    progress = resume(config, ranks, device, {"model": model, "optimizer": optimizer, "precision": precision})
    order = Order(len(train_reviews.labels), config, progress)
    feed = Feed(_endless_batches(train_reviews, order, device))

    def step() -> torch.Tensor:
        words_BL, labels_B = next(feed)
        with precision.autocast():
            loss = binary_cross_entropy_with_logits(forward(words_BL), labels_B)
        precision.update(loss, optimizer)
        return loss

    measured = train(step, config, order.steps_per_epoch, device, reporter, feed, progress)
    flops = step_flops(config.model, config.batch_size, config.length)
    report_counts(model, flops, reporter)
    report_mfu(flops, measured, precision, device, reporter)
    report_minimum_bytes(model, optimizer, next(feed), reporter)
    reporter.result("accuracy", _accuracy_percent(model, test_reviews, device), unit="%")


def _endless_batches(
    reviews: EncodedReviews, order: Order, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield words and labels for one step of this rank after the other."""
    for chosen in order:
        yield upload(reviews.words[chosen], device), upload(reviews.labels[chosen], device)


def _accuracy_percent(model: nn.Module, reviews: EncodedReviews, device: torch.device) -> float:
    words_NL, labels_N = torch.from_numpy(reviews.words), torch.from_numpy(reviews.labels)
    model.eval()
    with torch.inference_mode():
        guesses = [model(some.to(device)).cpu() > 0 for some in words_NL.split(TEST_BATCH_SIZE)]
    return 100 * (torch.cat(guesses) == (labels_N > 0)).double().mean().item()
