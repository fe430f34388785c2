from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax, nll_loss

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.data.cora import CitationGraph, read_cora
from gpuagent_workloads.suite.gcn import Config
from gpuagent_workloads.suite.gcn.train import (
    CITATIONS,
    HIDDEN,
    PAPERS,
    WORDS,
    Gcn,
    adjacency,
    features,
    make_graph,
    multiply,
    split,
    step_flops,
)
from gpuagent_workloads.training.model import count_flops
from tests.unit.workloads.runs import of_kind, phases_of, results_of, run_config, run_reporting

CPU = torch.device("cpu")

# Four papers: the first cites the second twice, and itself; the second and the third cite each other; the last none.
GRAPH = CitationGraph(
    words=np.array([[1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]], dtype=np.uint8),
    subjects=np.array([0, 1, 1, 0]),
    citations=np.array([[1, 0], [1, 0], [0, 0], [1, 2], [2, 1]]),
)


def test_it_trains_on_a_synthetic_graph_and_reports_everything(tmp_path: Path) -> None:
    arguments = ("--device", "cpu", "--threads", "1", "--warmup", "2", "--epochs", "60")
    events = run_reporting(tmp_path, "gcn", *arguments)
    assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
    assert [event["items"] for event in of_kind(events, "step")] == [1] * 62
    results = results_of(events)
    assert results["parameters"] == 23_040
    # Guessing the most frequent of seven subjects would give about 15.
    assert results["accuracy"] > 75
    assert "synthetic" in results["data_source"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["default", "bf16"])
def test_it_trains_on_a_gpu(tmp_path: Path, precision: str) -> None:
    results = results_of(run_config("gcn", tmp_path, device="cuda", epochs=200, precision=precision))
    assert results["accuracy"] > 75
    assert "mfu" not in results


def test_it_trains_on_cora_s_files_in_mixed_precision(tmp_path: Path) -> None:
    graph = make_graph(np.random.default_rng(3))
    papers = zip(graph.words, graph.subjects, strict=True)
    content = (f"p{i}\t" + "\t".join(map(str, words)) + f"\tsubject{y}\n" for i, (words, y) in enumerate(papers))
    (tmp_path / "cora.content").write_text("".join(content))
    (tmp_path / "cora.cites").write_text("".join(f"p{cited}\tp{citing}\n" for cited, citing in graph.citations))
    read = read_cora(tmp_path)
    for part in ("words", "subjects", "citations"):
        np.testing.assert_array_equal(getattr(read, part), getattr(graph, part))
    small = {"device": "cpu", "steps": 40, "warmup": 1, "threads": 1}
    results = results_of(run_config("gcn", tmp_path, data=str(tmp_path), precision="bf16", **small))
    assert results["autocast"] == "bfloat16"
    assert results["data_source"].endswith(str(tmp_path))
    assert results["accuracy"] > 60


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"batch_size": 2}, "--batch-size"),
        ({"ranks": 2}, "takes the whole graph in each step"),
        (
            {"elastic": "1:2", "steps": 1, "rendezvous": "127.0.0.1:29400", "checkpoint": "somewhere"},
            "takes the whole graph in each step",
        ),
    ],
)
def test_a_batch_is_the_whole_graph_which_ranks_cannot_share(parameters: dict[str, Any], complaint: str) -> None:
    with pytest.raises(MisuseError, match=complaint):
        Config(**parameters)


def test_the_adjacency_is_symmetric_with_self_loops_and_normalised_by_degrees() -> None:
    linked = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    scale = np.diag(1 / np.sqrt(linked.sum(axis=1)))
    a_NN = adjacency(GRAPH, CPU)
    np.testing.assert_allclose(a_NN.matrix.to_dense(), scale @ linked @ scale, rtol=1e-6)
    np.testing.assert_allclose(a_NN.transpose.to_dense(), a_NN.matrix.to_dense().T)
    assert a_NN.stored == linked.sum()


def test_features_are_scaled_by_row_and_papers_without_words_stay_empty() -> None:
    x_NW = features(GRAPH, CPU)
    expected = np.array([[0.5, 0.5, 0], [0, 1, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0, 0]])
    np.testing.assert_allclose(x_NW.matrix.to_dense(), expected, rtol=1e-6)
    np.testing.assert_allclose(x_NW.transpose.to_dense(), x_NW.matrix.to_dense().T)


def test_the_sparse_network_and_its_gradients_equal_the_dense_one() -> None:
    model = Gcn(3, 2).eval()
    x_NW, a_NN = features(GRAPH, CPU), adjacency(GRAPH, CPU)
    labels = torch.from_numpy(GRAPH.subjects)
    nll_loss(model(x_NW, a_NN), labels).backward()
    w1_WH, w2_HC = (weights.detach().clone().requires_grad_() for weights in model.parameters())
    x, a = x_NW.matrix.to_dense(), a_NN.matrix.to_dense()
    nll_loss(log_softmax(a @ ((a @ (x @ w1_WH)).relu() @ w2_HC), dim=1), labels).backward()
    for weights, expected in zip(model.parameters(), (w1_WH, w2_HC), strict=True):
        torch.testing.assert_close(weights.grad, expected.grad)


def test_sparse_products_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert multiply(features(GRAPH, CPU), torch.ones(3, 2, dtype=torch.bfloat16)).dtype == torch.float32


def test_model_flops_are_those_counted_by_hand() -> None:
    # 6 words in the papers, 8 values in the adjacency, 4 papers, 16 hidden features, 2 subjects.
    forward = 2 * (6 * 16 + 8 * 16 + 4 * 16 * 2 + 8 * 2)
    weight_gradients = 2 * (6 * 16 + 4 * 16 * 2)
    input_gradients = 2 * (8 * 16 + 4 * 16 * 2 + 8 * 2)
    counted = step_flops(Gcn(3, 2), features(GRAPH, CPU), adjacency(GRAPH, CPU)).total
    assert counted == forward + weight_gradients + input_gradients


def test_when_nothing_is_zero_model_flops_are_those_of_dense_products() -> None:
    full = CitationGraph(
        words=np.ones((5, 3), dtype=np.uint8),
        subjects=np.arange(5) % 2,
        citations=np.array([(i, j) for i in range(5) for j in range(5)]),
    )

    def dense_loss() -> torch.Tensor:
        with torch.device("meta"):
            x, a = torch.empty(5, 3), torch.empty(5, 5)
            w1, w2 = torch.empty(3, HIDDEN, requires_grad=True), torch.empty(HIDDEN, 2, requires_grad=True)
            return (a @ ((a @ (x @ w1)).relu() @ w2)).sum()

    counted = step_flops(Gcn(3, 2), features(full, CPU), adjacency(full, CPU)).total
    assert counted == count_flops(dense_loss).total


def test_the_synthetic_graph_has_cora_s_shape_and_depends_on_the_seed_alone() -> None:
    graph, again, other = (make_graph(np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert graph.words.shape == (2708, 1433)
    assert graph.words.sum() == other.words.sum() == WORDS
    assert graph.citations.shape == other.citations.shape == (CITATIONS, 2)
    assert adjacency(graph, CPU).stored == PAPERS + 2 * CITATIONS
    assert set(graph.subjects) == set(range(7))
    assert np.array_equal(graph.words, again.words)
    assert np.array_equal(graph.citations, again.citations)
    assert not np.array_equal(graph.words, other.words)


def test_papers_are_split_as_in_the_example_and_never_tested_on_when_trained_on() -> None:
    train, test = split(2708, seed=1)
    assert (len(train), len(test)) == (1208, 1000)
    assert not set(train) & set(test)
