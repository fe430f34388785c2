"""Training of the sentiment workload; its options are `Config` in `__init__.py`.

Vocabulary, embedding, hidden size and loss are those of the sentiment RNN that the studies used.

Shapes: B reviews of a batch, L words of a review, E features of a word, H hidden features.
"""

import math

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.sentiment import Config
from gpuagent_workloads.suite.sentiment.data import PADDING, VOCABULARY, load_reviews
from gpuagent_workloads.training.device import choose_device
from gpuagent_workloads.training.model import StepFlops
from gpuagent_workloads.training.session import Session, batches_in

EMBEDDING, HIDDEN = 100, 256

# Of the Transformer; the others have one layer.
LAYERS, HEADS, FEED_FORWARD = 2, 4, 1024

# Products with the word, and with the hidden state, for each word.
GATES = {"rnn": 1, "lstm": 4, "gru": 3}

# For each review: a product with a row of weights, and its two gradients.
_OUTPUT_FLOPS = 3 * 2 * HIDDEN

_RECURRENT = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def build_network(name: str) -> nn.Module:
    """Return the network called `name`: words (B, L) to logits (B,), positive for good reviews."""
    return Transformer() if name == "transformer" else Recurrent(name)


class Recurrent(nn.Module):
    """A recurrent network; its last hidden state decides."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING, padding_idx=PADDING)
        self.recurrent = _RECURRENT[name](EMBEDDING, HIDDEN, batch_first=True)
        self.output = nn.Linear(HIDDEN, 1)

    def forward(self, words_BL: torch.Tensor) -> torch.Tensor:
        """Return the logits, shape (B,)."""
        hidden_BLH, _ = self.recurrent(self.embedding(words_BL))
        logits_B1: torch.Tensor = self.output(hidden_BLH[:, -1])
        return logits_B1.squeeze(1)


class Transformer(nn.Module):
    """A Transformer; its mean over the words decides."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING, padding_idx=PADDING)
        self.widen = nn.Linear(EMBEDDING, HIDDEN)
        layer = nn.TransformerEncoderLayer(HIDDEN, HEADS, FEED_FORWARD, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(HIDDEN), enable_nested_tensor=False)
        self.output = nn.Linear(HIDDEN, 1)

    def forward(self, words_BL: torch.Tensor) -> torch.Tensor:
        """Return the logits, shape (B,)."""
        padded_BL = words_BL == PADDING
        hidden_BLH = self.widen(self.embedding(words_BL))
        _, length, width = hidden_BLH.shape
        places_L = torch.arange(length, device=hidden_BLH.device)
        powers = torch.arange(0, width, 2, device=hidden_BLH.device) * (-math.log(10_000) / width)
        angles = torch.outer(places_L, powers.exp())
        hidden_BLH = hidden_BLH + torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).to(hidden_BLH.dtype)
        hidden_BLH = self.encoder(hidden_BLH, src_key_padding_mask=padded_BL)
        read_BL1 = (~padded_BL).unsqueeze(2)
        mean_BH = (hidden_BLH * read_BL1).sum(dim=1) / read_BL1.sum(dim=1)
        logits_B1: torch.Tensor = self.output(mean_BH)
        return logits_B1.squeeze(1)


def step_flops(name: str, batch_size: int, length: int) -> StepFlops:
    """Return the floating-point operations of the matrix products of a step, forward and backward.

    They are the same on every device. torch counts none where a library has a function for a whole recurrent layer.
    Recurrent layers count among the convolutions, since cuDNN computes them, by its flag for TF32.
    """
    if name == "transformer":
        projections = 2 * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * FEED_FORWARD)
        # Queries with keys, and their weights with values; padding is computed as well.
        attention = 2 * (2 * length * HIDDEN)
        network = 3 * length * (2 * EMBEDDING * HIDDEN + LAYERS * (projections + attention))
        return StepFlops(convolutions=0, products=batch_size * (network + _OUTPUT_FLOPS))
    word, state = GATES[name] * 2 * EMBEDDING * HIDDEN, GATES[name] * 2 * HIDDEN * HIDDEN
    # Forward, gradients of the weights, gradients of what goes in; the first hidden state is zero and needs none.
    recurrent = 3 * length * (word + state) - state
    return StepFlops(convolutions=batch_size * recurrent, products=batch_size * _OUTPUT_FLOPS)


LEARNING_RATE = 1e-3

TEST_BATCH_SIZE = 250


def train_and_test(config: Config, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy.

    Raises MisuseError: this CPU has no LSTM in bfloat16, or the batch size is more than the data.
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

    session.learn(
        loss, order.steps_per_epoch, batches_in(order, train_reviews.words, train_reviews.labels, session.device)
    )
    session.report(step_flops(config.model, config.batch_size, config.length))
    words_NL, labels_N = torch.from_numpy(test_reviews.words), torch.from_numpy(test_reviews.labels)
    session.model.eval()
    with torch.inference_mode():
        guesses = [session.model(some.to(session.device)).cpu() > 0 for some in words_NL.split(TEST_BATCH_SIZE)]
    reporter.result("accuracy", (100 * (torch.cat(guesses) == (labels_N > 0)).double().mean().item()), unit="%")


def refuse_missing_kernel(model: str) -> None:
    """Check that this CPU can train the model in bfloat16, with a network of one word.

    oneDNN has an LSTM in bfloat16 only for CPUs with AVX-512 (the instructions avx512bw, avx512dq and avx512vl). Raises
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
