from gpuagent_collector.server.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    clock = Clock()
    throttle = Throttle(rate=10.0, burst=5.0, monotonic=clock)
    assert [throttle.delay_seconds() for _ in range(5)] == [0.0] * 5
    for _ in range(20):
        clock.seconds += throttle.delay_seconds()
    assert clock.seconds == 20 / 10.0


def test_what_was_not_used_is_kept_up_to_the_burst() -> None:
    clock = Clock()
    throttle = Throttle(rate=10.0, burst=5.0, monotonic=clock)
    clock.seconds = 1000.0
    assert [throttle.delay_seconds() > 0 for _ in range(7)] == [False] * 5 + [True] * 2
