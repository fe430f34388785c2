"""Training of the GCN workload.

Network, optimizer, split and scaling of the features are those of pytorch/examples, gcn/main.py, without biases. There,
as here, a step takes the whole graph, and the loss counts the training papers only.

Shapes: N papers, W words of the dictionary, H hidden features, C subjects.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import dropout, log_softmax, nll_loss

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.data.cora import CitationGraph, read_cora
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.gcn import ONE_RANK
from gpuagent_workloads.suite.gcn.sparse import SparseMatrix, adjacency, features, multiply
from gpuagent_workloads.suite.gcn.synthetic import make_graph
from gpuagent_workloads.training.config import SYNTHETIC, TrainingConfig
from gpuagent_workloads.training.model import StepFlops
from gpuagent_workloads.training.outline import LayerRow
from gpuagent_workloads.training.session import Session

HIDDEN = 16
DROPOUT = 0.5
LEARNING_RATE, WEIGHT_DECAY = 0.01, 5e-4

# Of the papers. The example holds the other 500 back to validate.
TRAIN_SHARE, TEST_SHARE = 1208 / 2708, 1000 / 2708


def train_and_test(config: TrainingConfig, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy."""
    graph = load_graph(config.data, config.seed, reporter)
    session = Session(
        config,
        reporter,
        lambda: Gcn(graph.words.shape[1], int(graph.subjects.max()) + 1),
        lambda model, _ranks: torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY),
    )
    if session.ranks.size > 1:
        raise MisuseError(ONE_RANK)
    device, model = session.device, session.model
    x_NW, a_NN = features(graph, device), adjacency(graph, device)
    y_N = torch.from_numpy(graph.subjects).to(device)
    train_papers, test_papers = (torch.from_numpy(papers).to(device) for papers in split(len(y_N), config.seed))

    session.learn(lambda: nll_loss(session.forward(x_NW, a_NN)[train_papers], y_N[train_papers]), steps_per_epoch=1)
    session.report(step_flops(model, x_NW, a_NN))
    model.eval()
    with torch.inference_mode():
        right = model(x_NW, a_NN).argmax(dim=1)[test_papers] == y_N[test_papers]
    reporter.result("accuracy", 100 * right.double().mean().item(), unit="%")


class Gcn(nn.Module):
    """Two graph convolutions without biases: log_softmax(A · dropout(relu(A · X · W1)) · W2)."""

    def __init__(self, words: int, subjects: int) -> None:
        super().__init__()
        self.w1_WH = nn.Parameter(nn.init.xavier_normal_(torch.empty(words, HIDDEN)))
        self.w2_HC = nn.Parameter(nn.init.xavier_normal_(torch.empty(HIDDEN, subjects)))

    def forward(self, x_NW: SparseMatrix, a_NN: SparseMatrix) -> torch.Tensor:
        """Return the logarithms of the probabilities of each paper's subjects, shape (N, C)."""
        h_NH = multiply(a_NN, multiply(x_NW, self.w1_WH)).relu()
        h_NH = dropout(h_NH, DROPOUT, self.training)
        return log_softmax(multiply(a_NN, h_NH @ self.w2_HC), dim=1)


def step_flops(model: nn.Module, x_NW: SparseMatrix, a_NN: SparseMatrix) -> StepFlops:
    """Return the floating-point operations of the matrix products of a step, forward and backward.

    torch counts sparse products as if they were dense, or not at all. Here each stored value costs a multiplication and
    an addition for each column of the other factor.
    """
    hidden, subjects = model.get_parameter("w2_HC").shape
    # The gradient of X · W1 is taken for the weights only; all others for both factors but the adjacency.
    first = 2 * (2 * x_NW.stored * hidden) + 2 * (2 * a_NN.stored * hidden)
    weights = 3 * (2 * a_NN.matrix.shape[0] * hidden * subjects)
    return StepFlops(convolutions=0, products=first + weights + 2 * (2 * a_NN.stored * subjects))


def layers(config: TrainingConfig) -> list[LayerRow]:
    """Return the two graph convolutions, by formula: sparse products count by their stored values."""
    graph = load_graph(config.data, config.seed, Reporter(None))
    x_NW, a_NN = (make(graph, torch.device("cpu")) for make in (features, adjacency))
    papers, words = graph.words.shape
    subjects = int(graph.subjects.max()) + 1
    first = 2 * HIDDEN * (x_NW.stored + a_NN.stored)
    second = 2 * subjects * (papers * HIDDEN + a_NN.stored)
    return [
        LayerRow(
            layer=name,
            type="graph convolution",
            output_shape=(papers, outputs),
            parameters=inputs * outputs,
            flops=flops,
            output_bytes=4 * papers * outputs,
            moved_bytes=None,
        )
        for name, inputs, outputs, flops in (("w1", words, HIDDEN, first), ("w2", HIDDEN, subjects, second))
    ]


def load_graph(source: str, seed: int, reporter: Reporter) -> CitationGraph:
    """Return the graph in directory `source`, or one made from the seed, and report its source.

    Raises:
        DataError: a file is missing or damaged.
    """
    if source != SYNTHETIC:
        reporter.result("data_source", f"cora.content and cora.cites in {source}")
        return read_cora(Path(source))
    reporter.result("data_source", f"synthetic citation graph, made from seed {seed}")
    return make_graph(np.random.default_rng(seed))


def split(papers: int, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions of the papers to train on and of those to test on, drawn by the seed."""
    order = np.random.default_rng(seed).permutation(papers)
    return order[: round(papers * TRAIN_SHARE)], order[papers - round(papers * TEST_SHARE) :]
