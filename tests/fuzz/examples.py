"""Inputs without coverage, by hypothesis: the corpus, changed in a few places, and anything at all."""

from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.tally import Attempt

_MOST_CHANGES = 4


def inputs(corpus: Sequence[bytes], tokens: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return inputs for a target."""
    anything = st.binary(max_size=200)
    added = anything | st.sampled_from(tokens) if tokens else anything
    change = st.tuples(st.floats(0, 1), st.integers(0, 20), added)
    changed = st.builds(_changed, st.sampled_from(corpus), st.lists(change, max_size=_MOST_CHANGES))
    return anything | changed | changed | changed


def _changed(data: bytes, changes: Sequence[tuple[float, int, bytes]]) -> bytes:
    """Replace, for each change, so many bytes at that share of the length by others."""
    for share, removed, added in changes:
        at = round(share * len(data))
        data = data[:at] + added + data[at + removed :]
    return data


def run_examples(
    attempt: Attempt, corpus: Sequence[bytes], tokens: Sequence[bytes], *, examples: int, seed_number: int
) -> None:
    """Give a target so many inputs, always the same ones; a failure is raised with its smallest input."""
    phases = (Phase.generate, Phase.shrink)
    given_inputs = given(data=inputs(corpus, tokens))
    limited = settings(
        max_examples=examples, database=None, phases=phases, deadline=None, suppress_health_check=list(HealthCheck)
    )

    def body(data: bytes) -> None:
        attempt(data)

    seed(seed_number)(limited(given_inputs(body)))()
