"""Training of the sentiment workload.

Vocabulary, embedding, hidden size and loss are those of the sentiment RNN that the studies used.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.sentiment import Config
from gpuagent_workloads.suite.sentiment.data import EncodedReviews, load_reviews
from gpuagent_workloads.suite.sentiment.model import build_network, step_flops
from gpuagent_workloads.training.device import choose_device, upload
from gpuagent_workloads.training.order import Order
from gpuagent_workloads.training.outline import LayerRow, outline
from gpuagent_workloads.training.session import Session

LEARNING_RATE = 1e-3

TEST_BATCH_SIZE = 250


def train_and_test(config: Config, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy.

    Raises:
        MisuseError: this CPU has no LSTM in bfloat16, or the batch size is more than the data.
    """
    if config.precision == "bf16" and choose_device(config.device).type == "cpu":
        refuse_missing_kernel(config.model)
    train_reviews, test_reviews = load_reviews(config.data, config.length, config.seed, reporter)
    reporter.result("model", config.model)
    session = Session(
        config,
        reporter,
        lambda: build_network(config.model),
        lambda model, _ranks: torch.optim.Adam(model.parameters(), lr=LEARNING_RATE),
    )
    order = session.order(len(train_reviews.labels))

    def loss(words_BL: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy_with_logits(session.forward(words_BL), labels_B)

    session.learn(loss, order.steps_per_epoch, _endless_batches(train_reviews, order, session.device))
    session.report(step_flops(config.model, config.batch_size, config.length))
    reporter.result("accuracy", _accuracy_percent(session.model, test_reviews, session.device), unit="%")


def layers(config: Config) -> list[LayerRow]:
    """Return the layers of the network."""
    with torch.device("meta"):
        model = build_network(config.model)
        words_BL = torch.empty(config.batch_size, config.length, dtype=torch.long)
    return outline({"": model}, lambda: model(words_BL))


def refuse_missing_kernel(model: str) -> None:
    """Check that this CPU can train the model in bfloat16, with a network of one word.

    oneDNN has an LSTM in bfloat16 only for CPUs with AVX-512 (the instructions avx512bw, avx512dq and avx512vl).

    Raises:
        MisuseError: the CPU lacks the instructions.
    """
    if model != "lstm":
        return
    network = torch.nn.LSTM(1, 1)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            network(torch.ones(1, 1, 1))[0].sum().backward()
    except RuntimeError as error:
        raise MisuseError(
            "--precision bf16: this CPU has no LSTM in bfloat16; use --precision fp32 or --model gru"
        ) from error


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
