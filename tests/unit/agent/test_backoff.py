import pytest

from gpuagent_common.backoff import Backoff


def test_delays_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=5)
    assert [backoff.next_delay_seconds() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next_delay_seconds() == 1


def test_a_retry_is_due_when_the_delay_has_passed() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=60)
    assert backoff.is_due(0)
    backoff.note_failure(10)
    assert (backoff.is_due(10.9), backoff.is_due(11)) == (False, True)
    backoff.note_failure(11)
    assert (backoff.is_due(12.9), backoff.is_due(13)) == (False, True)
    backoff.reset()
    assert backoff.is_due(0)


@pytest.mark.parametrize(("drawn", "delay"), [(0.5, 0.5), (1.0, 1.0)])
def test_jitter_shortens_a_delay(drawn: float, delay: float) -> None:
    def uniform(lowest: float, highest: float) -> float:
        assert (lowest, highest) == (0.5, 1.0)
        return drawn

    assert Backoff(first_seconds=1, longest_seconds=60, jitter=0.5, uniform=uniform).next_delay_seconds() == delay


def test_an_outage_of_any_length_has_a_delay() -> None:
    backoff = Backoff(first_seconds=0.5, longest_seconds=30, failures=100_000)
    assert backoff.next_delay_seconds() == 30
