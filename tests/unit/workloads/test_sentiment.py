from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.suite.sentiment import MODELS, data
from gpuagent_workloads.suite.sentiment.data import PADDING, VOCABULARY, encode, make_reviews, number_words, words_of
from gpuagent_workloads.suite.sentiment.train import build_network, step_flops
from gpuagent_workloads.training.model import count_flops
from tests.unit.workloads.runs import (
    of_kind,
    phases_of,
    read_events,
    results_of,
    run_config,
    run_reporting,
    start_workloads,
)

pytestmark = pytest.mark.slow


# Of the embedding, the gates or the encoder, and the output.
PARAMETERS = {"rnn": 2_592_105, "lstm": 2_867_049, "gru": 2_775_401, "transformer": 4_106_345}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_of_the_formula(name: str) -> None:
    with torch.device("meta"):
        model = build_network(name)
    assert sum(weights.numel() for weights in model.parameters()) == PARAMETERS[name]


def test_it_trains_on_synthetic_reviews_and_reports_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "SYNTHETIC_TRAIN", 1_700)
    arguments = ["--model", "gru", "--length", "20", "--batch-size", "32", "--warmup", "2", "--steps", "50"]
    events = run_reporting(tmp_path, "sentiment", "--device", "cpu", "--threads", "1", *arguments)
    assert phases_of(events) == ["prepare", "setup", "warmup", "measure", "teardown", "end"]
    assert [event["items"] for event in of_kind(events, "step")] == [32] * 52
    results = results_of(events)
    assert results["parameters"] == PARAMETERS["gru"]
    assert results["model_flops_per_step"] == step_flops("gru", 32, 20).total
    assert results["model"] == "gru"
    # Guessing gives 50 ± 2 on a thousand reviews.
    assert results["accuracy"] > 57
    assert "synthetic" in results["data_source"]


def test_an_lstm_in_bf16_is_refused_before_it_runs_on_a_cpu_without_it(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / f"{part}.tsv").write_text("pos\tfine\nneg\tdull\n")
    arguments = ("run", "sentiment", "--device", "cpu", "--model", "lstm", "--precision", "bf16")
    small = ("--batch-size", "2", "--data", str(tmp_path))
    # With it oneDNN behaves as on a CPU without AVX-512.
    done = start_workloads(*arguments, *small, GPUAGENT_RUN_DIR=str(tmp_path), ONEDNN_MAX_CPU_ISA="AVX2")
    assert done.returncode == 2
    assert "no LSTM in bfloat16" in done.stderr
    assert phases_of(read_events(tmp_path / "events.0.0.jsonl")) == ["prepare", "end"]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_learns_from_a_table_of_reviews_in_mixed_precision(name: str, tmp_path: Path) -> None:
    # A word that tells, a word that does not, and reviews of different lengths.
    labels_and_words = (("pos", "brilliant"), ("neg", "dreadful"))
    lines = [f"{label}\t{'The film. ' * (i % 4)}So {word}!\n" for i in range(8) for label, word in labels_and_words]
    for part in ("train", "test"):
        (tmp_path / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")
    small = {"device": "cpu", "batch_size": 8, "length": 8, "warmup": 1, "threads": 1, "epochs": 10}
    try:
        events = run_config("sentiment", tmp_path, model=name, data=str(tmp_path), precision="bf16", **small)
    except MisuseError as error:
        # oneDNN has no such LSTM for this CPU, or for the one that ONEDNN_MAX_CPU_ISA sets.
        assert (name, "no LSTM in bfloat16" in str(error)) == ("lstm", True)
        return
    results = results_of(events)
    assert results["data_source"] == f"reviews in {tmp_path}"
    assert (results["steps"], results["autocast"]) == (20, "bfloat16")
    assert results["accuracy"] == 100


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["default", "fp16", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_on_a_gpu(name: str, precision: str, tmp_path: Path) -> None:
    results = results_of(run_config("sentiment", tmp_path, device="cuda", model=name, steps=300, precision=precision))
    # So short a training of an RNN, which has no gates, may not be better than chance.
    assert results["accuracy"] > (45 if name == "rnn" else 57)
    assert 0 < results.get("mfu", 1) < 100


@pytest.mark.parametrize("name", MODELS)
def test_the_formulas_for_flops_agree_with_torch_where_it_counts_them(name: str) -> None:
    # On the meta device, which has no function for a whole recurrent layer, and no fused attention.
    with torch.device("meta"):
        model = build_network(name)
        words, labels = torch.empty(2, 5, dtype=torch.int32), torch.empty(2)
    counted = count_flops(lambda: binary_cross_entropy_with_logits(model(words), labels)).total
    assert step_flops(name, 2, 5).total == counted


@pytest.mark.parametrize("name", MODELS)
def test_padding_is_never_read_for_a_word(name: str) -> None:
    torch.manual_seed(1)
    model = build_network(name).eval()
    embedding = model.get_parameter("embedding.weight")
    words = torch.tensor([[PADDING, PADDING, 5, 6, 7]])
    before = model(words)
    before.sum().backward()
    assert embedding.grad is not None
    assert set(embedding.grad.any(dim=1).nonzero().flatten().tolist()) == {5, 6, 7}
    if name == "transformer":
        embedding.data[PADDING] = 1e3
        torch.testing.assert_close(model(words), before)


def test_words_are_taken_from_text() -> None:
    text = "Don't MISS it!<br /><br />It's <i>très</i> good_ish... 10/10?"
    assert words_of(text) == ["don't", "miss", "it", "!", "it's", "i", "très", "i", "good", "ish", "10", "10", "?"]


def test_the_most_frequent_words_get_numbers_and_the_alphabet_decides_between_equals() -> None:
    assert number_words([["b", "a", "c"], ["c"]]) == {"c": 2, "a": 3, "b": 4}
    many = number_words([[f"w{i}" for i in range(VOCABULARY)], ["w9"] * 3])
    assert many["w9"] == 2
    assert set(many.values()) == set(range(2, VOCABULARY))


def test_the_last_words_are_kept_and_padded_in_front() -> None:
    encoded = encode([["a", "b"], ["x", "b", "a", "a"], []], {"a": 2, "b": 3}, 3)
    np.testing.assert_array_equal(encoded, [[0, 2, 3], [3, 2, 2], [0, 0, 1]])
    np.testing.assert_array_equal(encode([["x"]], {}, 1), [[1]])


@given(text=st.text())
def test_any_text_can_be_encoded(text: str) -> None:
    words = words_of(text)
    encoded = encode([words], number_words([words]), 20)
    assert encoded.shape == (1, 20)
    assert 0 < encoded.max() < VOCABULARY


def test_synthetic_reviews_depend_on_the_seed_alone_and_differ_in_length() -> None:
    (words, labels), (again, _), (other, _) = (make_reviews(300, 21, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (words.shape, labels.shape) == ((300, 21), (300,))
    assert np.array_equal(words, again)
    assert not np.array_equal(words, other)
    assert set(labels.tolist()) == {0, 1}
    lengths = (words != PADDING).sum(axis=1)
    assert (lengths.min(), lengths.max()) == (11, 21)
    assert (words[np.arange(21) < 21 - lengths[:, np.newaxis]] == PADDING).all()
    assert words.max() < VOCABULARY
