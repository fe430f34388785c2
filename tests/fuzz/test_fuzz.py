"""A short run of every target of `python -m tests.fuzz`, with the same inputs each time."""

import logging

import pytest

from tests.fuzz import targets
from tests.fuzz.examples import run_examples

pytestmark = pytest.mark.slow

# Of targets that take more than a millisecond an input; others get the usual number.
_EXAMPLES = {
    "commit": 20,
    "export": 2,
    "hostile": 1,
    "http": 60,
    "node": 25,
    "nvml": 25,
    "prices": 40,
    "screen": 60,
    "spool": 10,
    "sql": 60,
}

_USUALLY = 150


@pytest.mark.parametrize("name", targets.TARGETS)
def test_no_input_breaks_it(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    corpus = targets.corpus(name)
    with targets.opened(name) as attempt:
        for data in corpus:
            attempt(data)
        run_examples(attempt, corpus, targets.load(name).TOKENS, examples=_EXAMPLES.get(name, _USUALLY), seed_number=1)


def test_every_target_is_listed_and_has_first_inputs() -> None:
    modules = {path.stem for path in (targets.CORPUS.parent / "targets").glob("[a-z]*.py")}
    assert modules == set(targets.TARGETS) == {path.name for path in targets.CORPUS.iterdir()}
    size = sum(path.stat().st_size for path in targets.CORPUS.rglob("*") if path.is_file())
    assert size < 200_000
