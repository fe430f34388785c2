"""The rank or GPU for which others wait, by the figures of each."""

from collections.abc import Mapping, Sequence

import pytest

from gpuagent_collector.runs.stragglers import describe_straggler


def parts(metric: str, *values: float, kind: str = "rank") -> Mapping[str, Mapping[str, float]]:
    return {f"{kind} {number}": {metric: value} for number, value in enumerate(values)}


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([parts("step_seconds", 0.1, 0.1, 0.12)], "Rank 2 is slowest: its median step takes 120 ms, 20 % longer"),
        # One run of three is no straggler.
        ([parts("step_seconds", 0.1, 0.1 + each) for each in (0.0, 0.1, 0.0)], "All ranks take steps of 100 ms"),
        ([{**parts("step_seconds", 0.1, 0.1)}, parts("data_wait_percent", 2, 40)], "Rank 1 waits longest for data"),
        ([parts("exposed_communication_percent", 20, 3, 21)], "Rank 1 is late: it waits 3"),
        # Steps of 99 and of 100 ms, in this order.
        ([parts("step_seconds", 0.1, 0.099)], "All ranks take steps of 99 ms to 100 ms"),
        ([parts("step_seconds", 0.1, 0.1)], "All ranks take steps of 100 ms: where"),
        # Each waits for communication alike, so none is late.
        ([{f"rank {rank}": {"step_seconds": 0.1, "exposed_communication_percent": 3.0} for rank in (0, 1)}], ""),
        (
            [parts("sm_clock_mhz", 1900, 1900, 1500, kind="GPU")],
            "GPU 2 is slowest: its mean SM clock is 1,500 MHz, 21 %",
        ),
        ([parts("sm_clock_mhz", 1900, 1500, kind="alder GPU")], "alder GPU 1 is slowest"),
        ([parts("sm_clock_mhz", 1900, 1880, kind="GPU")], ""),
        ([parts("step_seconds", 0.1)], ""),
        ([], ""),
    ],
)
def test_the_part_that_is_late_is_named(runs: Sequence[Mapping[str, Mapping[str, float]]], words: str) -> None:
    said = describe_straggler(runs)
    assert said.startswith(words) and bool(said) == bool(words)
