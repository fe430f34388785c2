import pytest

from benchmarks.agent_cost import lateness_ms

EPOCH_MS = 1_795_312_800_000.0


def test_a_tick_that_is_late_by_most_of_a_period_does_not_make_the_others_late() -> None:
    punctual = [EPOCH_MS + 20.0 * tick + 0.25 * (tick % 2) for tick in range(50)]
    after_a_slow_reading = [*punctual[:10], EPOCH_MS + 213.25, *punctual[11:]]
    assert lateness_ms(after_a_slow_reading, 20.0) == pytest.approx([0.0] * 24 + [0.25] * 25 + [13.25])
