"""Sparse matrices for the GCN: built with numpy, multiplied with torch."""

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.function import FunctionCtx, once_differentiable

from gpuagent_workloads.data.cora import CitationGraph


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
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            # 32-bit indices, since cuSPARSE is faster with them, and MKL takes no others.
            torch.from_numpy(row_starts.astype(np.int32)),
            torch.from_numpy(columns.astype(np.int32)),
            torch.from_numpy(values.astype(np.float32)),
            size=shape,
            check_invariants=True,
        )
