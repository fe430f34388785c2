"""Trains a classifier of film reviews, good or bad, and tests it: an RNN, an LSTM, a GRU or a Transformer.

    python -m gpuagent_workloads run sentiment --model lstm --device auto --batch-size 64

With real reviews instead of synthetic ones:

    gpuagent prepare sentiment --data ~/reviews
    python -m gpuagent_workloads run sentiment --data ~/reviews --model gru --epochs 5
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent_workloads.parameters import parameter
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import SYNTHETIC, TrainingConfig
from gpuagent_workloads.workload import Workload

MODELS = ("rnn", "lstm", "gru", "transformer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(TrainingConfig):
    """The shared parameters, and the model."""

    model: str = parameter("rnn", help="what reads the words", choices=MODELS)
    length: int = parameter(250, help="words of each review: the last ones, after padding", minimum=1, maximum=10_000)
    batch_size: int = parameter(64, help="reviews a step", minimum=1)
    data: str = parameter(
        SYNTHETIC, help="directory with aclImdb's folders or with train.tsv and test.tsv, or synthetic", path=True
    )


def run(config: Config, reporter: Reporter) -> None:
    """Train and test.

    Raises:
        MisuseError: the device, the precision or the batch size does not fit.
        DataError: the data cannot be used.
        NonFiniteError: the loss became NaN or infinite.
    """
    reporter.phase("prepare")
    # torch takes a second to import, which nobody should pay who only lists the workloads.
    from gpuagent_workloads.suite.sentiment.train import train_and_test

    train_and_test(config, reporter)


def prepare(directory: Path, mirrors: Sequence[str]) -> None:
    """Fetch aclImdb's archive and make train.tsv and test.tsv of it.

    Raises:
        DataError: no mirror has it as it must be.
    """
    from gpuagent_workloads.suite.sentiment.data import fetch_reviews

    fetch_reviews(directory, mirrors)


WORKLOAD = Workload(
    name="sentiment",
    summary="Trains and tests a classifier of film reviews: RNN (2,592,105 parameters), LSTM, GRU or Transformer.",
    kind="training",
    study="S1: virtual machine, Docker and Singularity compared (RNN), and the models that it asked for next",
    data="synthetic reviews made from the seed, or aclImdb's (prepare sentiment fetches 84 MB)",
    memory="about 0.8 GB of the host's and, on a GPU, 0.1 GB (rnn) to 1.5 GB (transformer), estimated",
    config=Config,
    run=run,
    prepare=prepare,
)
