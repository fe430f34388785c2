from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.sources.nvml_gpm import METRICS, NvmlGpm
from gpuagent.sources.support.gpm import MIN_SPAN_NANO, SampleRing
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, NvmlRecording
from tests.support.sources import OpenSource
from tests.support.trees import instant

ASKED = f"gpm({FIRST}, {', '.join(map(str, METRICS))})"


def take(ring: SampleRing[list[int]], now_nano: int) -> tuple[list[int], list[int]] | None:
    """Take a sample that holds its own time."""

    def fill(sample: list[int]) -> None:
        sample[:] = [now_nano]

    return ring.take(fill, now_nano)


@given(st.lists(st.integers(min_value=0, max_value=400_000_000), min_size=1, max_size=60))
def test_pairs_of_samples_are_far_enough_apart_and_end_now(gaps_nano: list[int]) -> None:
    ring = SampleRing[list[int]](list)
    for now_nano in accumulate(gaps_nano):
        pair = take(ring, now_nano)
        if pair is not None:
            (older_nano,), (newer_nano,) = pair
            assert newer_nano == now_nano
            assert newer_nano - older_nano >= MIN_SPAN_NANO


@given(st.lists(st.integers(min_value=34_000_000, max_value=400_000_000), min_size=4, max_size=60))
def test_polls_a_third_of_the_span_apart_always_find_a_pair(gaps_nano: list[int]) -> None:
    ring = SampleRing[list[int]](list)
    for count, now_nano in enumerate(accumulate(gaps_nano)):
        assert take(ring, now_nano) is not None or count < 3


def test_a_failed_sample_is_not_compared() -> None:
    ring = SampleRing[list[int]](list)
    take(ring, 0)
    for now_nano in (1, 2):
        with pytest.raises(ZeroDivisionError):
            ring.take(lambda _sample: 1 / 0, now_nano * MIN_SPAN_NANO)
    assert take(ring, 3 * MIN_SPAN_NANO) == ([0], [3 * MIN_SPAN_NANO])


def test_links_are_in_bytes_and_missing_metrics_are_asked_once(open_source: OpenSource) -> None:
    figures = {"2": 95.5, "10": 16.7, "20": 3.0}
    again = f"gpm({FIRST}, 2, 10, 20)"
    recorded = NvmlRecording.of_one_gpu(
        {ASKED: [{"answer": None}, {"answer": figures}], again: [{"answer": {"2": 1.0}}]}
    )
    source = open_source(NvmlGpm, open_nvml=recorded.open)
    assert list(source.read(instant(0))) == []
    (reading,) = source.read(instant(1))
    assert reading.values == {
        "device_id": key(FIRST),
        "sm_active_percent": 95.5,
        "dram_active_percent": 16.7,
        "pcie_send_bytes_per_second": 3 * 2**20,
    }
    list(source.read(instant(2)))
    assert recorded.calls[again] == 1


def test_a_failed_metric_is_absent_and_asked_again(open_source: OpenSource) -> None:
    again = f"gpm({FIRST}, 2, 10)"
    recorded = NvmlRecording.of_one_gpu(
        {ASKED: [{"answer": {"2": None, "10": 1.0}}], again: [{"answer": {"2": 95.5, "10": 2.0}}]}
    )
    source = open_source(NvmlGpm, open_nvml=recorded.open)
    found = [reading.values for second in range(2) for reading in source.read(instant(second))]
    assert [values.get("sm_active_percent") for values in found] == [None, 95.5]
    assert [values["dram_active_percent"] for values in found] == [1.0, 2.0]
