"""Training of the GCN workload; its options are `Config` in `__init__.py`.

Network, optimizer, split and scaling of the features are those of pytorch/examples, gcn/main.py, without biases. There,
as here, a step takes the whole graph, and the loss counts the training papers only.

Shapes: N papers, W words of the dictionary, H hidden features, C subjects.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.functional import dropout, log_softmax, nll_loss

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.data.cora import CitationGraph, read_cora
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.gcn import ONE_RANK
from gpuagent_workloads.training.config import SYNTHETIC, TrainingConfig
from gpuagent_workloads.training.model import StepFlops
from gpuagent_workloads.training.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseMatrix:
    """A constant matrix in compressed rows, with its transpose ready for the backward pass."""

    matrix: torch.Tensor
    transpose: torch.Tensor
    # The number of stored values; the others are zero.
    stored: int


def adjacency(graph: CitationGraph, device: torch.device) -> SparseMatrix:
    """Return D^(-1/2) (A + I) D^(-1/2), shape (papers, papers), as in Kipf and Welling 2017.

    A is 1 where either of two papers cites the other, however often. D holds the row sums of A + I.
    """
    papers = len(graph.subjects)
    itself = np.arange(papers)
    rows = np.concatenate([graph.citations[:, 0], graph.citations[:, 1], itself])
    columns = np.concatenate([graph.citations[:, 1], graph.citations[:, 0], itself])
    rows, columns = np.divmod(np.unique(rows * papers + columns), papers)
    scale = 1 / np.sqrt(np.bincount(rows))
    return _from_coordinates(rows, columns, scale[rows] * scale[columns], (papers, papers), device)


def features(graph: CitationGraph, device: torch.device) -> SparseMatrix:
    """Return the words of each paper, shape (papers, words), scaled to a row sum of 1; empty rows stay empty."""
    rows, columns = graph.words.nonzero()
    values = 1 / np.bincount(rows)[rows]
    return _from_coordinates(rows, columns, values, graph.words.shape, device)


def multiply(sparse: SparseMatrix, dense: torch.Tensor) -> torch.Tensor:
    """Return sparse × dense in float32 even under autocast: not every device has it in half precision."""
    product: torch.Tensor = _Product.apply(sparse.matrix, sparse.transpose, dense.float())  # type: ignore[no-untyped-call]
    return product


class _Product(torch.autograd.Function):
    """A product without torch's transposition of the matrix in every backward pass."""

    @staticmethod
    def forward(ctx: FunctionCtx, matrix: torch.Tensor, transpose: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        ctx.transpose = transpose  # type: ignore[attr-defined]
        with torch.autocast(dense.device.type, enabled=False):
            return matrix @ dense

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> tuple[None, None, torch.Tensor]:
        transpose: torch.Tensor = ctx.transpose  # type: ignore[attr-defined]
        return None, None, transpose @ gradient


def _from_coordinates(
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    shape: tuple[int, ...],
    device: torch.device,
) -> SparseMatrix:
    order = np.lexsort((rows, columns))
    return SparseMatrix(
        matrix=_compress_rows(rows, columns, values, shape).to(device),
        transpose=_compress_rows(columns[order], rows[order], values[order], shape[::-1]).to(device),
        stored=len(values),
    )


def _compress_rows(
    rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64], values: npt.NDArray[np.float64], shape: tuple[int, ...]
) -> torch.Tensor:
    """Return a tensor in compressed rows; the coordinates are ordered by row, then by column."""
    row_starts = np.concatenate([[0], np.bincount(rows, minlength=shape[0]).cumsum()])
    with warnings.catch_warnings():
        # Some versions of torch ask for a choice that `check_invariants` is.
        warnings.filterwarnings("ignore", "Sparse (CSR tensor support is in beta|invariant checks are)")
        return torch.sparse_csr_tensor(
            # 32-bit indices, since cuSPARSE is faster with them, and MKL takes no others.
            torch.from_numpy(row_starts.astype(np.int32)),
            torch.from_numpy(columns.astype(np.int32)),
            torch.from_numpy(values.astype(np.float32)),
            size=shape,
            check_invariants=True,
        )


PAPERS, DICTIONARY, SUBJECTS = 2708, 1433, 7
# Pairs of papers of which one cites the other: Cora's 5,429 citations, without those that go both ways or repeat.
CITATIONS = 5278
# Words in all papers together.
WORDS = 49_216

# Of the citations, as in Cora.
_SAME_SUBJECT_SHARE = 0.81

# Of the dictionary, for each subject; they may be another subject's too.
_TOPICAL_WORDS = 200

# The advantage of topical words. At 0 the words are random; at this value they alone identify the subject of about
# three of four papers, as in Cora.
_TOPICAL_BONUS = 1.0


def make_graph(random: np.random.Generator) -> CitationGraph:
    """Return a graph with exactly Cora's numbers of papers, words, subjects and neighbours."""
    subjects = random.integers(0, SUBJECTS, PAPERS)
    topics = np.zeros((SUBJECTS, DICTIONARY))
    for topic in topics:
        topic[random.choice(DICTIONARY, _TOPICAL_WORDS, replace=False)] = _TOPICAL_BONUS
    # Adding Gumbel noise and taking the highest draws without replacement, with weights exp(bonus).
    scores = topics[subjects] + random.gumbel(size=(PAPERS, DICTIONARY))
    ranks = (-scores).argsort(axis=1).argsort(axis=1)
    at_least, one_more = divmod(WORDS, PAPERS)
    counts = at_least + (np.arange(PAPERS) < one_more)
    words: npt.NDArray[np.uint8] = (ranks < counts[:, np.newaxis]).astype(np.uint8)
    # Twice as many as are needed, since some papers pair with themselves and some pairs come twice.
    citing = random.integers(0, PAPERS, 2 * CITATIONS)
    cited = random.integers(0, PAPERS, 2 * CITATIONS)
    by_subject = [np.flatnonzero(subjects == subject) for subject in range(SUBJECTS)]
    same = random.random(2 * CITATIONS) < _SAME_SUBJECT_SHARE
    cited[same] = [random.choice(by_subject[subject]) for subject in subjects[citing[same]]]
    pairs = np.sort(np.column_stack([cited, citing]), axis=1)[cited != citing]
    _, first = np.unique(pairs, axis=0, return_index=True)
    unique: npt.NDArray[np.int64] = pairs[np.sort(first)[:CITATIONS]]
    return CitationGraph(words=words, subjects=subjects, citations=unique)


HIDDEN = 16
DROPOUT = 0.5
LEARNING_RATE, WEIGHT_DECAY = 0.01, 5e-4

# Of the papers. The example holds the other 500 back to validate.
TRAIN_SHARE, TEST_SHARE = 1208 / 2708, 1000 / 2708


def train_and_test(config: TrainingConfig, reporter: Reporter) -> None:
    """Run the workload from its data to its accuracy."""
    if config.data != SYNTHETIC:
        reporter.result("data_source", f"cora.content and cora.cites in {config.data}")
        graph = read_cora(Path(config.data))
    else:
        reporter.result("data_source", f"synthetic citation graph, made from seed {config.seed}")
        graph = make_graph(np.random.default_rng(config.seed))
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


def split(papers: int, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions of the papers to train on and of those to test on, drawn by the seed."""
    order = np.random.default_rng(seed).permutation(papers)
    return order[: round(papers * TRAIN_SHARE)], order[papers - round(papers * TEST_SHARE) :]
