"""Trains a classifier of film reviews, good or bad, and tests it: an RNN, an LSTM, a GRU or a Transformer."""

from dataclasses import dataclass

from gpuagent_workloads.training.config import SYNTHETIC, TrainingConfig
from gpuagent_workloads.workload import Workload, parameter

MODELS = ("rnn", "lstm", "gru", "transformer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(TrainingConfig):
    """The shared parameters, and the model."""

    model: str = parameter("rnn", help="kind of network", choices=MODELS)
    length: int = parameter(250, help="last words of each review, padded in front", minimum=1, maximum=10_000)
    batch_size: int = parameter(64, help="reviews a step", minimum=1)
    data: str = parameter(
        SYNTHETIC, help="directory with aclImdb's folders or with train.tsv and test.tsv, or synthetic", path=True
    )


WORKLOAD = Workload(
    name="sentiment",
    summary="Trains and tests a classifier of film reviews: RNN (2,592,105 parameters), LSTM, GRU or Transformer.",
    kind="training",
    study="S1: virtual machine, Docker and Singularity compared (RNN), and the models that it asked for next",
    data="synthetic reviews made from the seed, or aclImdb's (prepare sentiment fetches 84 MB)",
    memory="about 0.8 GB of the host's and, on a GPU, 0.1 GB (rnn) to 1.5 GB (transformer), estimated",
    config=Config,
    entry="gpuagent_workloads.suite.sentiment.train:train_and_test",
    preparation="gpuagent_workloads.suite.sentiment.data:fetch_reviews",
)
