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
        self.reads = 0
        self.dated_nano: list[int] = []

    def read(self, now: Instant) -> Iterable[Reading]:
        self.reads += 1
        self.dated_nano.append(now.monotonic_nano)
        raise SourceError(f"nothing at {now}")

    def close(self) -> None:
        raise AssertionError("whoever opened it closes it")


def test_a_source_has_a_cost_at_its_own_rate_even_when_it_fails() -> None:
    source = Failing()
    (cost,) = measure_costs([source], 10.0, SystemClock())
    assert source.reads == 1 + ROUNDS
    assert (cost.source, cost.rate_hz) == ("failing", 2.0)
    assert cost.cpu_percent == 200 * cost.cpu_seconds
    assert cost.cpu_seconds > 0
    assert cost.wall_seconds > 0


def test_readings_are_dated_a_period_of_the_source_apart() -> None:
    source = Failing()
    measure_costs([source], 10.0, SystemClock())
    assert {after - before for before, after in pairwise(source.dated_nano)} == {500_000_000}
