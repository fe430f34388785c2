"""The Llama network and the engine that serves it: the same tokens whichever way they are computed."""

import threading
from functools import partial

import pytest
import torch

from gpuagent_workloads.llama import PRESETS
from gpuagent_workloads.llama.model import Cache, Llama
from gpuagent_workloads.server import Engine, Request, decode, encode

CPU = torch.device("cpu")
TINY = PRESETS["tiny"]


# Of 1b, 3b and 8b as Meta counts them.
@pytest.mark.parametrize(("name", "parameters"), [("1b", 1_235_814_400), ("3b", 3_212_749_824), ("8b", 8_030_261_248)])
def test_presets_have_the_published_number_of_parameters(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = Llama(PRESETS[name], context=8)
    assert sum(weights.numel() for weights in model.parameters()) == parameters


def test_tokens_from_the_cache_get_the_scores_of_a_whole_pass() -> None:
    torch.manual_seed(1)
    model = Llama(TINY, context=32).eval()
    tokens_BL = torch.randint(0, TINY.vocabulary, (2, 12))
    cache = Cache(TINY, 4, 32, device=CPU, dtype=torch.float32)
    with torch.inference_mode():
        whole_BLV = model.logits(model(tokens_BL))
        positions_BL = torch.arange(8).expand(2, 8)
        parts = [model.logits(model(tokens_BL[:, :8], positions_BL, cache, first=1, end=8))]
        for place in range(8, 12):
            at_BL = torch.full((2, 1), place)
            parts.append(model.logits(model(tokens_BL[:, place : place + 1], at_BL, cache, first=1, end=place + 1)))
    torch.testing.assert_close(torch.cat(parts, dim=1), whole_BLV)


def test_a_token_depends_on_the_order_of_those_before_and_not_on_later_ones() -> None:
    torch.manual_seed(1)
    model = Llama(TINY, context=8).eval()
    with torch.inference_mode():
        one, swapped, longer = (model(torch.tensor([tokens])) for tokens in ([1, 2, 3], [2, 1, 3], [1, 2, 3, 4]))
    assert not torch.allclose(one[0, 2], swapped[0, 2])
    torch.testing.assert_close(longer[0, :3], one[0])


def serve(requests: list[tuple[str, int]], *, slots: int) -> list[list[int]]:
    """Return the tokens with which an engine continues each prompt."""
    engine = Engine(TINY, context=64, slots=slots, prefill=16, device=CPU, dtype=torch.float32, seed=1)
    made: list[list[int]] = [[] for _ in requests]
    left = threading.Semaphore(0)

    def emit(index: int, token: int | None) -> None:
        if token is None:
            left.release()
        else:
            made[index].append(token)

    for index, (prompt, most) in enumerate(requests):
        asked = Request(prompt=encode(prompt), most=most, temperature=0.0, emit=partial(emit, index))
        engine.submit(asked)
    thread = threading.Thread(target=engine.run)
    thread.start()
    for _ in requests:
        left.acquire()
    engine.close()
    thread.join()
    return made


def test_a_batch_that_requests_join_and_leave_answers_as_if_each_were_alone() -> None:
    asked = [("a", 1), ("some words", 9), ("other words and more of them", 3), ("b", 20), ("the last", 5)]
    together = serve(asked, slots=2)
    assert [len(tokens) for tokens in together] == [most for _, most in asked]
    assert together == [serve([one], slots=1)[0] for one in asked]


def test_a_cancelled_request_leaves_its_place_to_the_next() -> None:
    engine = Engine(TINY, context=64, slots=1, prefill=64, device=CPU, dtype=torch.float32, seed=1)
    ended = threading.Event()
    endless = Request(prompt=[1], most=60, temperature=1.0, emit=lambda _token: setattr(endless, "cancelled", True))
    next_one = Request(prompt=[2], most=2, temperature=0.0, emit=lambda token: ended.set() if token is None else None)
    engine.submit(endless)
    engine.submit(next_one)
    thread = threading.Thread(target=engine.run)
    thread.start()
    ended.wait()
    engine.close()
    thread.join()
    assert endless.cancelled


def test_an_engine_counts_its_requests_and_the_cache_in_use() -> None:
    engine = Engine(TINY, context=64, slots=2, prefill=64, device=CPU, dtype=torch.float32, seed=1)
    seen: list[dict[str, float]] = []
    ended = threading.Event()

    def emit(token: int | None) -> None:
        seen.append(engine.figures())
        if token is None:
            ended.set()

    engine.submit(Request(prompt=[1, 2, 3], most=4, temperature=0.0, emit=emit))
    assert engine.figures() == {"requests_running": 0, "requests_waiting": 1, "kv_cache_usage": 0}
    thread = threading.Thread(target=engine.run)
    thread.start()
    ended.wait()
    engine.close()
    thread.join()
    # Three of 128 places with the first token, and one more with each of the others.
    assert [each["kv_cache_usage"] * 128 for each in seen[:4]] == [3, 4, 5, 6]
    assert {each["requests_running"] for each in seen[:4]} == {1}
    assert engine.figures() == {"requests_running": 0, "requests_waiting": 0, "kv_cache_usage": 0}


def test_every_token_is_one_printable_character() -> None:
    assert encode("né") == [110, 0xC3, 0xA9]
    text = decode([0, 65, 127, 255, 128_255])
    assert len(text) == 5
    assert text.isprintable()
    assert text[1] == "A"
