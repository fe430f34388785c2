from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuagent.sources.nvml_gpm import METRICS, NvmlGpm
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.gpm import MIN_SPAN_NANO, SampleRing
from tests.support.nvml_replay import NvmlRecording
from tests.support.trees import instant

UUID = "GPU-11111111-aaaa-4aaa-8aaa-111111111111"
ASKED = f"gpm({UUID}, {', '.join(map(str, METRICS))})"


def recording(gpm: dict[str, list[dict[str, Any]]]) -> NvmlRecording:
    answer = {"answer": [UUID]}
    return NvmlRecording({"open()": [{"answer": None}], "devices()": [answer], **gpm})


class Counters:
    """A GPU's counters: a sample holds when it was filled."""

    def __init__(self) -> None:
        self.now_nano = 0

    def fill(self, sample: list[int]) -> None:
        sample[:] = [self.now_nano]


@given(st.lists(st.integers(min_value=0, max_value=400_000_000), min_size=1, max_size=60))
def test_whatever_the_polls_pairs_are_far_enough_apart_and_end_now(gaps_nano: list[int]) -> None:
    counters, ring = Counters(), SampleRing[list[int]](list)
    for gap_nano in gaps_nano:
        counters.now_nano += gap_nano
        pair = ring.take(counters.fill, counters.now_nano)
        if pair is not None:
            (older_nano,), (newer_nano,) = pair
            assert newer_nano == counters.now_nano
            assert newer_nano - older_nano >= MIN_SPAN_NANO


@given(st.lists(st.integers(min_value=34_000_000, max_value=400_000_000), min_size=4, max_size=60))
def test_polls_a_third_of_the_span_apart_all_find_a_pair_once_there_is_one(gaps_nano: list[int]) -> None:
    counters, ring = Counters(), SampleRing[list[int]](list)
    for count, gap_nano in enumerate(gaps_nano):
        counters.now_nano += gap_nano
        pair = ring.take(counters.fill, counters.now_nano)
        assert count < 3 or pair is not None


def test_a_sample_that_could_not_be_taken_is_not_compared() -> None:
    ring = SampleRing[list[int]](list)
    counters = Counters()
    ring.take(counters.fill, 0)
    for now_nano in (1, 2):
        try:
            ring.take(lambda _sample: 1 / 0, now_nano * MIN_SPAN_NANO)
        except ZeroDivisionError:
            continue
    counters.now_nano = 3 * MIN_SPAN_NANO
    assert ring.take(counters.fill, counters.now_nano) == ([0], [3 * MIN_SPAN_NANO])


def test_links_are_told_in_bytes_and_what_a_gpu_lacks_is_not_asked_again() -> None:
    figures = {"2": 95.5, "10": 16.7, "20": 3.0}
    again = f"gpm({UUID}, 2, 10, 20)"
    recorded = recording({ASKED: [{"answer": None}, {"answer": figures}], again: [{"answer": {"2": 1.0}}]})
    source = NvmlGpm(SourceContext(open_nvml=recorded.open))
    assert list(source.read(instant(0))) == []
    (reading,) = source.read(instant(1))
    values = dict(reading.values)
    del values["device_id"]
    assert values == {
        "sm_active_percent": 95.5,
        "dram_active_percent": 16.7,
        "pcie_send_bytes_per_second": 3 * 2**20,
    }
    list(source.read(instant(2)))
    assert recorded.calls[again] == 1


def test_what_failed_once_is_absent_and_asked_again() -> None:
    again = f"gpm({UUID}, 2, 10)"
    recorded = recording({ASKED: [{"answer": {"2": None, "10": 1.0}}], again: [{"answer": {"2": 95.5, "10": 2.0}}]})
    source = NvmlGpm(SourceContext(open_nvml=recorded.open))
    told = [reading.values for second in range(2) for reading in source.read(instant(second))]
    assert [values.get("sm_active_percent") for values in told] == [None, 95.5]
    assert [values["dram_active_percent"] for values in told] == [1.0, 2.0]


def test_a_gpu_without_counters_is_asked_once() -> None:
    recorded = recording({ASKED: [{"error": 3, "words": "Not Supported"}]})
    source = NvmlGpm(SourceContext(open_nvml=recorded.open))
    assert [list(source.read(instant(second))) for second in range(3)] == [[], [], []]
    assert recorded.calls[ASKED] == 1
