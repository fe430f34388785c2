from collections.abc import Iterable
from itertools import pairwise

from gpuagent.clock import Instant, SystemClock
from gpuagent.errors import SourceError
from gpuagent.sampling.costs import ROUNDS, measure_costs
from gpuagent.sources.source import Lane, Reading


class Failing:
    name = "failing"
    lane = Lane.FAST
    max_rate_hz = 2.0

    def __init__(self) -> None:
        self.dated_nano: list[int] = []

    def read(self, now: Instant) -> Iterable[Reading]:
        self.dated_nano.append(now.monotonic_nano)
        raise SourceError(f"nothing at {now}")

    def close(self) -> None:
        raise AssertionError("the opener closes it")


def test_a_source_has_a_cost_at_its_own_rate_even_when_it_fails() -> None:
    source = Failing()
    (cost,) = measure_costs([source], 10.0, SystemClock())
    assert len(source.dated_nano) == 1 + ROUNDS
    # Dated a period of the source apart, so that its rare work counts as often as in the agent.
    assert {after - before for before, after in pairwise(source.dated_nano)} == {500_000_000}
    assert (cost.source, cost.rate_hz) == ("failing", 2.0)
    assert cost.cpu_percent == 200 * cost.cpu_seconds
    assert cost.cpu_seconds > 0
    assert cost.wall_seconds > 0
